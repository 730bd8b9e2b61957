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
func (f *flow) protect(p *protection) {
	var secret *dek.DEK
	if p.units {
		secret = must(dek.New([]byte("measures only, and protects nothing: this text is the whole key.")))
	}
	for _, e := range []*end{&f.here, &f.there} {
		flags := mkey.BlockSignature
		if p.units {
			flags |= mkey.CryptoOffload
		}
		key := must(e.pd.NewMKey(verbs.MKeyAttr{Flags: flags, MaxEntries: 1}))
		e.key = key
		c := e.qps[0].Start().Signaled()
		c.Configure(key).Access(rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead).List(e.mr.SGE(0, f.size))
		c.Signature(mkey.Signature{Wire: &sig.Format{Type: sig.T10DIF, BlockSize: block}})
		if p.units {
			c.Crypto(mkey.Crypto{EncryptOnTX: true, Order: mkey.SignatureBeforeCrypto, DataUnitSize: signedBlock, DEK: secret})
		}
		check(c.Complete())
		e.wait(make([]rdma.WC, 1), new(int))
		e.sge, e.rkey, e.addr = key.SGE(0, f.size/block*signedBlock), key.RKey(), 0
	}
}

// over returns a flow of an operation over UDP on loopback, whose message it has checked. p is nil for plain regions.
func over(op rdma.Opcode, size int, p *protection) *flow {
	f := loopback(1, size, verbs.QPAttr{MaxRecvWR: receives, MaxSendWR: 256, MaxInlineData: 160})
	f.op = op
	err := attempt(func() {
		if p != nil {
			f.protect(p)
		}
		if op == rdma.OpSend {
			f.startReceiver()
		}
		f.check()
	})
	if err != nil {
		f.close()
	}
	check(err)
	return f
}

// startReceiver starts a goroutine that receives messages until close, and answers them if f.answers is set.
func (f *flow) startReceiver() {
	qp := f.there.qps[0]
	for range receives {
		check(f.there.receive(qp))
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
		row.Check = func() error {
			return attempt(func() {
				if ours = over(op, row.Size, p); p != nil {
					plain = over(op, row.Size, nil)
				}
			})
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
	plain := sampled("package net", func(d time.Duration) float64 { return datagramPingPong(size, d) })
	return bench.Row{
		Group: "wire", Operation: "SEND, ping-pong", Size: size, Unit: bench.Micros, Peer: &plain, Target: 1.5,
		Ours:  sampled("softmkey", func(d time.Duration) float64 { return f.pingPong(d) }),
		Check: func() error { return attempt(func() { f = over(rdma.OpSend, size, nil) }) },
		Done:  func() { f.close() },
	}
}

// pingPong sends a message back and forth for the time d, and returns half of the median round trip in microseconds.
func (f *flow) pingPong(d time.Duration) float64 {
	f.answers.Store(true)
	defer f.answers.Store(false)
	qp, wcs := f.here.qps[0], make([]rdma.WC, 2)
	return halfTrip(d, func() {
		check(f.here.receive(qp))
		f.post(qp, 1)
		for done := 0; done < 2; { // the message and the answer
			f.here.wait(wcs, &done)
		}
	})
}

// datagramPingPong does the same with sockets of package net.
func datagramPingPong(size int, d time.Duration) float64 {
	far := must(net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopbackAny)))
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
	near := must(net.Dial("udp", far.LocalAddr().String()))
	defer near.Close()
	check(near.SetDeadline(time.Now().Add(d + patience)))
	buf := make([]byte, size)
	return halfTrip(d, func() {
		must(near.Write(buf))
		must(near.Read(buf))
	})
}

// halfTrip repeats a round trip for the time d, and returns half of the median in microseconds.
func halfTrip(d time.Duration, trip func()) float64 {
	var trips []time.Duration
	for last, until := time.Now(), time.Now().Add(d); last.Before(until); {
		trip()
		now := time.Now()
		trips = append(trips, now.Sub(last))
		last = now
	}
	slices.Sort(trips)
	return trips[len(trips)/2].Seconds() * 1e6 / 2
}

// bareUDP returns the case of datagrams alone over loopback, of the same size as a
// message's packets, with GSO and GRO.
func bareUDP() bench.Case { return sampled("bare UDP", datagramStream) }

// datagramStream sends trains of datagrams for the time d, at most 16 in flight, which the receiver's buffer
// holds. It returns the payload in GB/s.
func datagramStream(d time.Duration) float64 {
	const data, headers, inFlight = 4096, 16, 16
	tx := must(udp.Listen(loopbackAny, nil))
	defer tx.Close()
	rx := must(udp.Listen(loopbackAny, nil))
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
			return float64(sent*count*data) / float64(time.Since(start).Nanoseconds())
		}
		if more && pending < inFlight*len(train[0].Buf) {
			must(tx.Send(train))
			sent++
			pending += len(train[0].Buf)
			continue
		}
		select {
		case n := <-arrived:
			pending -= n
		case <-time.After(patience):
			check(errors.New("a train of datagrams did not arrive"))
		}
	}
}
