package udpbench

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/softmkey/softmkey/packetconn"
)

// sender sends trains of one shape to one address.
type sender interface {
	send() error // one train
	close()
}

// receiver receives the trains of a sender.
type receiver interface {
	// recv waits for at least one datagram and returns the number of bytes received,
	// or 0 after close.
	recv() (int, error)
	// close unblocks recv.
	close()
}

// patience is the time after which a missing train or datagram is an error. No measured
// time depends on it.
const patience = 5 * time.Second

// Stream sends trains while more returns true, and returns when all have arrived.
func Stream(c Config, more func() bool) (Result, error) {
	addr := c.addr()
	seg := c.Data + HeaderBytes
	if c.Data <= 0 || seg > packetconn.MaxBytes(addr.Addr()) {
		return Result{}, fmt.Errorf("udpbench: datagrams with %d bytes of data", c.Data)
	}
	if c.Trains <= 0 {
		c.Trains = defaultTrains
	}
	count := min(packetconn.MaxBytes(addr.Addr())/seg, 64) // every kernel takes 64 in one call
	var tx sender
	var rx receiver
	var err error
	switch c.Variant {
	case Raw:
		tx, rx, err = rawStream(addr, seg, count)
	case Batched:
		tx, rx, err = batchedStream(c, seg, count)
	default:
		err = ErrUnsupported
	}
	if err != nil {
		return Result{}, err
	}
	defer tx.close()

	// A credit is the right to have one more train in flight.
	credits := make(chan struct{}, c.Trains)
	for range c.Trains {
		credits <- struct{}{}
	}
	var wg sync.WaitGroup
	var rerr error
	wg.Go(func() { rerr = receive(rx, seg*count, credits) })

	start := time.Now()
	sent, err := pump(tx, credits, more)
	// All trains have arrived when all credits have returned.
	for i := 0; i < c.Trains && err == nil; i++ {
		err = take(credits)
	}
	elapsed := time.Since(start)
	rx.close()
	wg.Wait()
	if err := errors.Join(err, rerr); err != nil {
		return Result{}, err
	}
	return Result{Bytes: sent * uint64(count) * uint64(c.Data), Elapsed: elapsed, Count: sent}, nil
}

// pump sends trains, one for each credit, and returns their number.
func pump(tx sender, credits <-chan struct{}, more func() bool) (uint64, error) {
	for sent := uint64(0); ; sent++ {
		if !more() {
			return sent, nil
		}
		if err := take(credits); err != nil {
			return sent, err
		}
		if err := tx.send(); err != nil {
			return sent, err
		}
	}
}

// take waits for a credit.
func take(credits <-chan struct{}) error {
	select {
	case <-credits:
		return nil
	default:
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-credits:
		return nil
	case <-timeout.C:
		return errors.New("udpbench: a train did not arrive")
	}
}

// receive returns a credit for each complete train, in one piece or several, until rx is
// closed.
func receive(rx receiver, train int, credits chan<- struct{}) error {
	got := 0
	for {
		n, err := rx.recv()
		if n == 0 || err != nil {
			return err
		}
		for got += n; got >= train; got -= train {
			credits <- struct{}{}
		}
	}
}
