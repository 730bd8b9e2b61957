package engine

import (
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/rdma"
)

// ConnectOptions are those of package verbs, where they are documented.
type ConnectOptions struct {
	Access      *rdma.Access
	MTU         int
	Timeout     time.Duration
	Retries     int
	RNRRetries  int
	RNRDelay    time.Duration
	MaxRdAtomic int
	SGIDIndex   int
}

// Terms returns the attributes of a QP that the options determine alone.
func (o *ConnectOptions) Terms() (m ibv.QPModify, err error) {
	m.AccessFlags = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic
	if o.Access != nil {
		m.AccessFlags = *o.Access
	}
	number := func(name string, v, otherwise int) int {
		switch {
		case v < 0:
			return 0
		case v == 0:
			return otherwise
		case v > otherwise && err == nil:
			err = failure.New("connect", syscall.EINVAL, "%s %d: at most %d", name, v, otherwise)
		}
		return v
	}
	m.RetryCnt, m.RNRRetry = uint8(number("Retries", o.Retries, 7)), uint8(number("RNRRetries", o.RNRRetries, 7))
	m.MaxRdAtomic = number("MaxRdAtomic", o.MaxRdAtomic, MaxRdAtomic)
	m.MaxDestRdAtomic = m.MaxRdAtomic
	// Code 0 of a timeout is none, and that of an RNR timer the longest delay.
	if m.Timeout = 14; o.Timeout < 0 {
		m.Timeout = 0
	} else if o.Timeout > 0 {
		m.Timeout = shortest(o.Timeout, roce.AckTimeout)
		if m.Timeout == 0 && err == nil {
			err = failure.New("connect", syscall.EINVAL, "Timeout %v: at most %v", o.Timeout, roce.AckTimeout(31))
		}
	}
	if m.MinRNRTimer = 12; o.RNRDelay != 0 {
		m.MinRNRTimer = shortest(o.RNRDelay, roce.RNRTimer)
		if o.RNRDelay > roce.RNRTimer(0) && err == nil {
			err = failure.New("connect", syscall.EINVAL, "RNRDelay %v: at most %v", o.RNRDelay, roce.RNRTimer(0))
		}
	}
	return m, err
}

// shortest returns the code from 1 to 31 of the shortest time that is not shorter than d, or 0.
func shortest(d time.Duration, timer func(code uint8) time.Duration) uint8 {
	for code := uint8(1); code <= 31; code++ {
		if timer(code) >= d {
			return code
		}
	}
	return 0
}
