package bareudp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxTrain is the largest number of bytes that one call sends over IPv4.
	maxTrain = 1<<16 - 1 - 20 - 8

	// headerBytes is the overhead of each datagram of a stream: a base transport header and
	// the invariant CRC, as in a middle packet of a message.
	headerBytes = 16

	// trains is the number of trains in flight. Its 2 MiB count as less than 4 MiB in the
	// kernel's accounting, which fits a buffer that needs no privilege.
	trains = 32
)

// Stream sends trains of datagrams with data bytes of payload each while more returns true. When
// all have arrived, it returns the bytes of payload per nanosecond.
func Stream(data int, more func() bool) (gbps float64, err error) {
	seg := data + headerBytes
	if data <= 0 || seg > maxTrain {
		return 0, fmt.Errorf("datagrams with %d bytes of data", data)
	}
	count := min(maxTrain/seg, 64) // every kernel takes 64 in one call
	tx, err := newSocket()
	if err != nil {
		return 0, err
	}
	defer tx.close()
	rx, err := newSocket()
	if err != nil {
		return 0, err
	}
	err = errors.Join(
		tx.control(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, seg) }),
		rx.control(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1) }),
	)
	if err != nil {
		rx.close()
		return 0, err
	}
	tx.first(rx.addr())

	// A credit is the right to have one more train in flight.
	credits := make(chan struct{}, trains)
	for range trains {
		credits <- struct{}{}
	}
	var wg sync.WaitGroup
	var rerr error
	wg.Go(func() { rerr = receive(rx, seg*count, credits) })

	start := time.Now()
	sent, err := pump(tx, seg*count, credits, more)
	// All trains have arrived when all credits have returned.
	for i := 0; i < trains && err == nil; i++ {
		err = take(credits)
	}
	elapsed := time.Since(start)
	rx.close()
	wg.Wait()
	return float64(sent*count*data) / float64(elapsed.Nanoseconds()), errors.Join(err, rerr)
}

// pump sends trains, one for each credit, and returns their number.
func pump(tx *socket, train int, credits <-chan struct{}, more func() bool) (sent int, err error) {
	for ; more(); sent++ {
		if err := take(credits); err != nil {
			return sent, err
		}
		if err := tx.send(train); err != nil {
			return sent, err
		}
	}
	return sent, nil
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
		return errors.New("a train did not arrive")
	}
}

// receive returns a credit for each complete train, in one piece or several, until rx is
// closed.
func receive(rx *socket, train int, credits chan<- struct{}) error {
	got := 0
	for {
		n, err := rx.recv()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		for got += n; got >= train; got -= train {
			credits <- struct{}{}
		}
	}
}
