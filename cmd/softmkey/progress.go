package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

const (
	// patience is how long a command runs before it shows its progress.
	patience = 300 * time.Millisecond
	// redraw is the time between two drawings of the progress.
	redraw = 100 * time.Millisecond
)

// progress shows the progress of a command on a terminal, with rate and remaining time, and
// erases the line at the end. A nil progress shows nothing. A goroutine draws the line at regular
// times, so that rate and remaining time are right even if an input stalls.
type progress struct {
	done          atomic.Int64 // bytes
	ending, ended chan struct{}
	counts        bool // the bytes are the title, because there is no room for more

	mu    sync.Mutex // guards the following fields
	bar   *progressbar.ProgressBar
	shown bool
}

// newProgress returns a progress on standard error, or nil if that is no terminal.
// A total that is not known is -1.
func newProgress(title string, total int64) *progress {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width == 0 {
		width = 80
	}
	return startProgress(os.Stderr, width, title, total)
}

// figuresWidth is the width of the bytes, the rate and the times of hours, with a bar of some characters.
const figuresWidth = 64

// startProgress returns a progress that is drawn on a terminal of the given width. A line that is longer than the
// terminal could not be erased. A narrow one gets no title, and a very narrow one the percentage and the bar, or
// the bytes, alone.
func startProgress(terminal io.Writer, width int, title string, total int64) *progress {
	p := &progress{ending: make(chan struct{}), ended: make(chan struct{})}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(terminal),
		progressbar.OptionFullWidth(),
		progressbar.OptionSetSpinnerChangeInterval(0), // keeps the library from drawing in a goroutine of its own
		progressbar.OptionClearOnFinish(),
	}
	if width >= figuresWidth+utf8.RuneCountInString(title) {
		options = append(options, progressbar.OptionSetDescription(title))
	}
	if width >= figuresWidth {
		options = append(options, progressbar.OptionShowBytes(true), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true))
	} else {
		options = append(options, progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false))
		p.counts = total < 0
	}
	p.bar = progressbar.NewOptions64(total, options...)
	p.bar.StartWithoutRender()
	go p.draw()
	return p
}

// draw draws the bar until the end.
func (p *progress) draw() {
	defer close(p.ended)
	next := time.NewTimer(patience)
	defer next.Stop()
	for {
		select {
		case <-p.ending:
			return
		case <-next.C:
		}
		p.mu.Lock()
		p.shown = true
		if p.counts {
			p.bar.Describe(fmt.Sprintf("%d MB", p.done.Load()/1e6))
		}
		_ = p.bar.Set64(p.done.Load()) // the command goes on even if the terminal has gone
		p.mu.Unlock()
		next.Reset(redraw)
	}
}

// set shows that done bytes are done.
func (p *progress) set(done int64) {
	if p != nil {
		p.done.Store(done)
	}
}

// hide erases the bar so that a line can be printed. The bar returns when show is called.
func (p *progress) hide() (show func()) {
	if p == nil {
		return func() {}
	}
	p.mu.Lock()
	p.clearLocked()
	return p.mu.Unlock
}

func (p *progress) clearLocked() {
	if p.shown {
		_ = p.bar.Clear()
	}
}

// end erases the bar and ends its goroutine.
func (p *progress) end() {
	if p == nil {
		return
	}
	select {
	case <-p.ending: // end was called before
		return
	default:
	}
	close(p.ending)
	<-p.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
}
