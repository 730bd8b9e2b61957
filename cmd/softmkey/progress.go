package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// patience is how long a command runs before it shows its progress.
const patience = 300 * time.Millisecond

// progress shows on a terminal how far a command is, with rate and remaining time,
// and leaves nothing behind. It may be nil, which shows nothing.
type progress struct {
	bar   *progressbar.ProgressBar
	total int64 // -1: not known
	title string
	start time.Time
}

// newProgress returns a progress on standard error, or nil if that is no terminal.
func newProgress(title string, total int64) *progress {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return &progress{total: total, title: title, start: time.Now()}
}

// set shows that done bytes are done.
func (p *progress) set(done uint64) {
	if p == nil {
		return
	}
	if p.bar == nil {
		if time.Since(p.start) < patience {
			return
		}
		p.bar = progressbar.NewOptions64(p.total,
			progressbar.OptionSetWriter(os.Stderr),
			progressbar.OptionSetDescription(p.title),
			progressbar.OptionShowBytes(true),
			progressbar.OptionShowCount(),
			progressbar.OptionShowTotalBytes(true),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionFullWidth(),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	}
	_ = p.bar.Set64(int64(done)) // a terminal that has gone away is no reason to stop
}

// hide takes the bar off the screen, to make room for a line.
func (p *progress) hide() {
	if p != nil && p.bar != nil {
		_ = p.bar.Clear()
	}
}
