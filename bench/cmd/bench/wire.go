package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/tool/bench"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// protection is a configuration of memory keys, the same at both ends: memory holds data, and the wire
// is signed, or signed and encrypted.
type protection struct {
	name   string
	units  bool // whether the stream is encrypted in units of a block and its field
	target float64
}

var protections = []protection{{"T10-DIF on the wire", false, 0.85}, {"row C", true, 0.7}}

// block is the length of a signed block, signedBlock the same with its field.
const block, signedBlock = 512, 520

// protect gives both ends keys over their memory, through which messages go from now on.
func (f *flow) protect(p *protection) error {
	var secret *dek.DEK
	if p.units {
		var err error
		key := []byte("measures only, and protects nothing: this text is the whole key.")
		if secret, err = dek.New(key); err != nil {
			return err
		}
	}
	for _, e := range []*end{&f.here, &f.there} {
		flags := mkey.BlockSignature
		if p.units {
			flags |= mkey.CryptoOffload
		}
		key, err := e.pd.NewMKey(verbs.MKeyAttr{Flags: flags, MaxEntries: 1})
		if err != nil {
			return err
		}
		e.key = key
		c := e.qps[0].Start().Signaled()
		c.Configure(key).Access(rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead).List(e.mr.SGE(0, f.size))
		c.Signature(mkey.Signature{Wire: &sig.Format{Type: sig.T10DIF, BlockSize: block}})
		if p.units {
			c.Crypto(mkey.Crypto{EncryptOnTX: true, Order: mkey.SignatureBeforeCrypto, DataUnitSize: signedBlock, DEK: secret})
		}
		if err := c.Complete(); err != nil {
			return err
		}
		if err := e.wait(make([]rdma.WC, 1), new(int)); err != nil {
			return err
		}
		e.sge, e.rkey, e.addr = key.SGE(0, f.size/block*signedBlock), key.RKey(), 0
	}
	return nil
}

// over returns a flow of an operation over UDP on loopback, whose message it has checked. p is nil for plain regions.
func over(op rdma.Opcode, size int, p *protection) (*flow, error) {
	f, err := loopback(1, size, verbs.QPAttr{MaxRecvWR: receives, MaxSendWR: 256, MaxInlineData: 160})
	if err != nil {
		return nil, err
	}
	f.op = op
	if p != nil {
		err = f.protect(p)
	}
	if op == rdma.OpSend && err == nil {
		err = f.startReceiver()
	}
	if err = errors.Join(err, f.check()); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// startReceiver starts a goroutine that receives messages until close, and answers them if f.answers is set.
func (f *flow) startReceiver() error {
	qp := f.there.qps[0]
	for range receives {
		if err := f.there.receive(qp); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	f.stop = func() { stop(); <-ended }
	go func() {
		defer close(ended)
		wcs := make([]rdma.WC, receives)
		for {
			n, err := f.there.cq.Wait(ctx, wcs)
			if err != nil {
				return
			}
			for i := range wcs[:n] {
				if wcs[i].Opcode != rdma.OpRecv {
					continue
				}
				err := f.there.receive(qp)
				if f.answers.Load() {
					err = errors.Join(err, qp.Start().Send().Inline(f.there.mr.Bytes()).Complete())
				}
				if err != nil {
					return // the sender's queue pair fails
				}
			}
		}
	}()
	return nil
}

// receives is the number of receive requests: more than messages are in flight, because the program posts new
// ones later than the device takes messages.
const receives = 512

// receive posts a receive request.
func (e *end) receive(qp *verbs.QP) error {
	_, err := qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{e.sge}})
	return err
}

// operations are the measured ones, by the names of the rows.
var operations = []struct {
	name string
	op   rdma.Opcode
}{{"WRITE", rdma.OpRDMAWrite}, {"READ", rdma.OpRDMARead}, {"SEND", rdma.OpSend}}

// wireRows returns the rows of messages between two devices over UDP on loopback.
func wireRows() []bench.Row {
	var rows []bench.Row
	add := func(row bench.Row, op rdma.Opcode, p *protection) {
		var ours, plain *flow
		row.Group = "wire"
		row.Ours = rate("softmkey", row.Unit, &ours)
		if p != nil {
			peer := rate("plain", row.Unit, &plain)
			row.Variant, row.Peer, row.Target = p.name, &peer, p.target
		}
		row.Check = func() (err error) {
			if ours, err = over(op, row.Size, p); err == nil && p != nil {
				plain, err = over(op, row.Size, nil)
			}
			return err
		}
		row.Done = func() { ours.close(); plain.close() }
		rows = append(rows, row)
	}
	for _, size := range []int{64 << 10, 1 << 20} {
		for _, o := range operations {
			add(bench.Row{Operation: o.name, Size: size, Unit: bench.GBps, Peer: iperf(), Limit: new(bareUDP()), Target: 2, LimitTarget: 0.7}, o.op, nil)
		}
	}
	for _, o := range operations {
		for i := range protections {
			add(bench.Row{Operation: o.name, Size: 1 << 20, Unit: bench.GBps}, o.op, &protections[i])
		}
	}
	add(bench.Row{Operation: "WRITE, small ones", Size: 64, Unit: bench.Mops, Bound: 1}, rdma.OpRDMAWrite, nil)
	return append(rows, pingPong())
}

// pingPong returns the row of a message that is sent back, next to a datagram of package net. The
// result is half of the median round trip.
func pingPong() bench.Row {
	const size = 64
	var f *flow
	plain := bench.Case{Name: "package net", Sample: func(d time.Duration) (float64, error) { return datagramPingPong(size, d) }}
	return bench.Row{
		Group: "wire", Operation: "SEND, ping-pong", Size: size, Unit: bench.Micros, Peer: &plain, Target: 1.5,
		Ours:  bench.Case{Name: "softmkey", Sample: func(d time.Duration) (float64, error) { return f.pingPong(d) }},
		Check: func() (err error) { f, err = over(rdma.OpSend, size, nil); return err },
		Done:  func() { f.close() },
	}
}

// pingPong sends a message back and forth for the time d, and returns half of the median round trip in microseconds.
func (f *flow) pingPong(d time.Duration) (float64, error) {
	f.answers.Store(true)
	defer f.answers.Store(false)
	qp, wcs := f.here.qps[0], make([]rdma.WC, 2)
	return halfTrip(d, func() error {
		if err := errors.Join(f.here.receive(qp), f.post(qp, 1)); err != nil {
			return err
		}
		for done := 0; done < 2; { // the message and the answer
			if err := f.here.wait(wcs, &done); err != nil {
				return err
			}
		}
		return nil
	})
}

// datagramPingPong does the same with sockets of package net.
func datagramPingPong(size int, d time.Duration) (float64, error) {
	far, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopbackAny))
	if err != nil {
		return 0, err
	}
	defer far.Close()
	go func() {
		buf := make([]byte, size)
		for {
			n, from, err := far.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			far.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	near, err := net.Dial("udp", far.LocalAddr().String())
	if err != nil {
		return 0, err
	}
	defer near.Close()
	if err := near.SetDeadline(time.Now().Add(d + patience)); err != nil {
		return 0, err
	}
	buf := make([]byte, size)
	return halfTrip(d, func() error {
		_, err := near.Write(buf)
		if err == nil {
			_, err = near.Read(buf)
		}
		return err
	})
}

// halfTrip repeats a round trip for the time d, and returns half of the median in microseconds.
func halfTrip(d time.Duration, trip func() error) (float64, error) {
	var trips []time.Duration
	for last, until := time.Now(), time.Now().Add(d); last.Before(until); {
		if err := trip(); err != nil {
			return 0, err
		}
		now := time.Now()
		trips = append(trips, now.Sub(last))
		last = now
	}
	slices.Sort(trips)
	return trips[len(trips)/2].Seconds() * 1e6 / 2, nil
}

// bareUDP returns the case of datagrams alone over loopback, of the same size as a
// message's packets, with GSO and GRO.
func bareUDP() bench.Case { return bench.Case{Name: "bare UDP", Sample: datagramStream} }

// datagramStream sends trains of datagrams for the time d, at most 16 in flight, which the receiver's buffer
// holds. It returns the payload in GB/s.
func datagramStream(d time.Duration) (float64, error) {
	const data, headers, inFlight = 4096, 16, 16
	tx, err := udp.Listen(loopbackAny, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Close()
	rx, err := udp.Listen(loopbackAny, nil)
	if err != nil {
		return 0, err
	}
	defer rx.Close()
	arrived := make(chan int, inFlight)
	go func() {
		in := make([]packetconn.Train, inFlight)
		for i := range in {
			in[i].Buf = make([]byte, packetconn.RecvSize)
		}
		for {
			n, err := rx.Recv(in)
			if err != nil {
				return
			}
			size := 0
			for _, train := range in[:n] {
				size += len(train.Buf)
			}
			arrived <- size
		}
	}()
	count := tx.Limits().Bytes / (data + headers)
	train := []packetconn.Train{{Addr: rx.LocalAddr(), Buf: make([]byte, count*(data+headers)), Seg: data + headers}}
	start, sent, pending := time.Now(), 0, 0
	for {
		more := time.Since(start) < d
		if !more && pending == 0 {
			return float64(sent*count*data) / float64(time.Since(start).Nanoseconds()), nil
		}
		if more && pending < inFlight*len(train[0].Buf) {
			if _, err := tx.Send(train); err != nil {
				return 0, err
			}
			sent++
			pending += len(train[0].Buf)
			continue
		}
		select {
		case n := <-arrived:
			pending -= n
		case <-time.After(patience):
			return 0, errors.New("a train of datagrams did not arrive")
		}
	}
}
