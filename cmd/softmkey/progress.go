package main

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

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
	return startProgress(os.Stderr, title, total)
}

// startProgress returns a progress that is drawn on a terminal.
func startProgress(terminal io.Writer, title string, total int64) *progress {
	p := &progress{ending: make(chan struct{}), ended: make(chan struct{})}
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(terminal),
		progressbar.OptionSetDescription(title),
		progressbar.OptionShowBytes(true),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionFullWidth(),
		progressbar.OptionSetSpinnerChangeInterval(0), // keeps the library from drawing in a goroutine of its own
		progressbar.OptionClearOnFinish(),
	)
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
