package udpbench

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/softmkey/softmkey/roce/packetconn"
)

// sender sends trains of one shape to one address.
type sender interface {
	send() error // one train
	close()
}

// receiver receives them.
type receiver interface {
	// recv waits for at least one datagram and returns the bytes of all that it
	// took; 0 after close.
	recv() (int, error)
	// close ends a recv that waits.
	close()
}

// patience is how long a stream waits for a train that does not arrive. Nothing
// that is measured depends on it.
const patience = 5 * time.Second

// Stream sends trains for as long as more says, and returns when all have
// arrived.
func Stream(c Config, more func() bool) (Result, error) {
	addr := c.addr()
	seg := c.Data + HeaderBytes
	if c.Data <= 0 || seg > packetconn.MaxBytes(addr.Addr()) {
		return Result{}, fmt.Errorf("udpbench: datagrams with %d bytes of data", c.Data)
	}
	if c.Trains <= 0 {
		c.Trains = defaultTrains
	}
	count := min(packetconn.MaxBytes(addr.Addr())/seg, 64) // what a call takes on every kernel
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

	// A credit is the right to have a train on its way.
	credits := make(chan struct{}, c.Trains)
	for range c.Trains {
		credits <- struct{}{}
	}
	var wg sync.WaitGroup
	var rerr error
	wg.Go(func() { rerr = receive(rx, seg*count, credits) })

	start := time.Now()
	sent, err := pump(tx, credits, more)
	// All trains have arrived when all credits are back.
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

// pump sends trains, each for a credit, and returns how many.
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

// receive returns a credit for each train, however it was cut, until rx is
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
