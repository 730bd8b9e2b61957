package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// patience is how long a command runs before it shows its progress.
const patience = 300 * time.Millisecond

// progress shows on a terminal the progress of a command, with rate and remaining time,
// and erases the line at the end. It may be nil, which shows nothing.
type progress struct {
	bar   *progressbar.ProgressBar
	start time.Time
}

// newProgress returns a progress on standard error, or nil if that is no terminal.
// A total that is not known is -1.
func newProgress(title string, total int64) *progress {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	p := &progress{start: time.Now()}
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetDescription(title),
		progressbar.OptionShowBytes(true),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionFullWidth(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	p.bar.StartWithoutRender()
	return p
}

// set shows that done bytes are done.
func (p *progress) set(done uint64) {
	if p != nil && p.shown() {
		_ = p.bar.Set64(int64(done)) // a terminal that has gone away is no reason to stop
	}
}

// hide takes the bar off the screen, to make room for a line.
func (p *progress) hide() {
	if p != nil && p.shown() {
		_ = p.bar.Clear()
	}
}

func (p *progress) shown() bool { return time.Since(p.start) >= patience }
