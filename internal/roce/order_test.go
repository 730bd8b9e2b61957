package roce

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// ways are the ways of packets between two QPs.
var ways = []struct {
	name   string
	memory bool
	opts   pairOptions
}{
	{name: "network"},
	{name: "ring", memory: true},
	{name: "inside", opts: pairOptions{inside: true}},
}

// TestAcknowledgedBeforeAnswer answers each message as soon as it completes, on the same QP or on another one that is
// already waiting to send. The message must be acknowledged before its answer arrives, also behind responses of READs.
func TestAcknowledgedBeforeAnswer(t *testing.T) {
	const rounds = 20
	for _, way := range ways {
		for _, another := range []bool{false, true} {
			for _, size := range []int{0, 64, 3000} {
				for _, reads := range []int{0, 4000, 400_000} {
					if another && reads > turnBytes {
						continue // the responses of a long READ and the requests of another QP take turns
					}
					t.Run(fmt.Sprintf("%s, another QP %v, %d bytes, READ of %d", way.name, another, size, reads), func(t *testing.T) {
						byMemory = [2]bool{way.memory, way.memory}
						defer func() { byMemory = [2]bool{} }()
						p := newPair(t, way.opts)
						answers, mem := p.qp, p.mem
						if another {
							for i := range answers {
								mem[i] = newMemory(t, fmt.Sprint("answering side ", i))
								var err error
								if answers[i], err = p.port[i].NewQP(mem[i], rdma.RC); err != nil {
									t.Fatal(err)
								}
							}
							o := way.opts
							o.defaults()
							for i := range answers {
								p.start(i, answers[i], answers[1-i], o)
							}
						}
						p.mem[1].keys[1] = make([]byte, reads)
						completed := func() (n int) {
							for _, e := range p.mem[0].ended {
								if e.w.Op == ibv.WRSend {
									n++
								}
							}
							return n
						}
						p.mem[1].onRecv = func() {
							mem[1].post(&Work{Op: ibv.WRSend, Src: &source{b: make([]byte, size)}, Length: uint32(size)})
							p.port[1].ready.push(answers[1])
						}
						early := 0
						mem[0].onRecv = func() {
							if completed() < len(mem[0].got) {
								early++
							}
						}
						for range rounds {
							p.mem[1].recv(make([]byte, size))
							mem[0].recv(make([]byte, size))
							if reads > 0 {
								p.post(0, &Work{Op: ibv.WRRead, Dst: &sink{b: make([]byte, reads)}, Length: uint32(reads), RKey: 1})
							}
							p.post(0, &Work{Op: ibv.WRSend, Src: &source{b: make([]byte, size)}, Length: uint32(size)})
							p.port[1].ready.push(answers[1]) // it waits for its turn, as after an acknowledgement
							p.run(10_000)
						}
						if n := len(mem[0].got); n != rounds || early != 0 {
							t.Errorf("%d of %d answers came before the acknowledgement", early, n)
						}
						p.idle()
					})
				}
			}
		}
	}
}

// TestReadBeforeLaterRequests posts a READ and, without a fence, a request that changes the memory. The READ must
// return what the memory had before, however long it is.
func TestReadBeforeLaterRequests(t *testing.T) {
	for _, way := range ways {
		for _, op := range []ibv.WROp{ibv.WRWrite, ibv.WRWriteImm, ibv.WRSend, ibv.WRFetchAdd, ibv.WRCmpSwap} {
			for _, size := range []int{8, 20_000, maxKept + 1024} {
				for _, count := range []int{1, 3} {
					t.Run(fmt.Sprintf("%s, %v after %d READs of %d", way.name, op, count, size), func(t *testing.T) {
						byMemory = [2]bool{way.memory, way.memory}
						defer func() { byMemory = [2]bool{} }()
						p := newPair(t, way.opts)
						before := pattern(size, 1)
						memory := bytes.Clone(before)
						p.mem[1].keys[1] = memory
						p.mem[1].recv(memory)
						var reads []*sink
						for range count {
							d := &sink{b: make([]byte, size)}
							reads = append(reads, d)
							p.post(0, &Work{Op: ibv.WRRead, Dst: d, Length: uint32(size), RKey: 1})
						}
						w := &Work{Op: op, Src: &source{b: pattern(size, 2)}, Length: uint32(size), RKey: 1}
						if op.Atomic() {
							w.Src, w.Length, w.CompareAdd, w.Swap = nil, 8, 1, 2
							if op == ibv.WRCmpSwap {
								copy(memory, []byte{1, 0, 0, 0, 0, 0, 0, 0})
								copy(before, memory)
							}
						}
						p.post(0, w)
						p.run(1_000_000)
						p.mem[0].allSucceeded(count + 1)
						for i, r := range reads {
							if !bytes.Equal(r.b, before) {
								t.Errorf("READ %d returned bytes of the request after it", i)
							}
						}
						if bytes.Equal(memory, before) {
							t.Error("the last request changed nothing")
						}
						p.idle()
						if n := p.port[1].kept.used.Load(); n != 0 || p.qp[1].resp.kept != 0 {
							t.Errorf("%d bytes of READs are kept", n)
						}
					})
				}
			}
		}
	}
}

// TestEarlyRepetition repeats a READ whose responses are on their way, after a WRITE to the same memory has been
// executed. The READ came first, so its responses have the bytes that the memory had before the WRITE.
func TestEarlyRepetition(t *testing.T) {
	const size = 600_000
	for _, sent := range []int{0, 1, 2} { // turns before the WRITE arrives
		for _, more := range []int{0, 1} { // and before the repetition
			for _, from := range []int{0, 1, 10, 100, 150, 300, 580} {
				for _, times := range []int{1, 2} {
					p := newPair(t, pairOptions{})
					before := pattern(size, 1)
					memory := bytes.Clone(before)
					p.mem[1].keys[1] = memory
					d := &sink{b: make([]byte, size)}
					p.post(0, &Work{Op: ibv.WRRead, Dst: d, Length: size, RKey: 1})
					read := p.drain(0)[0]
					p.post(0, &Work{Op: ibv.WRWrite, Src: &source{b: pattern(size, 2)}, Length: size, RKey: 1})
					write := p.drain(0)
					p.deliver(1, bytes.Clone(read), 0)
					for range sent {
						p.port[1].pump(1)
					}
					for _, b := range write {
						p.deliver(1, b, 0)
					}
					for range more {
						p.port[1].pump(1)
					}
					for range times {
						b := bytes.Clone(read)
						h := wire.ParseBTH(b)
						h.PSN = psnAdd(h.PSN, from)
						wire.PutBTH(b, &h)
						r := wire.ParseRETH(b[wire.BTHLen:])
						at := from * p.qp[1].mtu()
						r.VA, r.Length = r.VA+uint64(at), r.Length-uint32(at)
						wire.PutRETH(b[wire.BTHLen:], &r)
						p.qp[1].address(b)
						p.deliver(1, b, 0)
					}
					p.run(1_000_000)
					p.mem[0].allSucceeded(2)
					if i := firstDifference(d.b, before); i >= 0 {
						t.Errorf("%d turns, WRITE, %d turns, %d times response %d: byte %d is of the WRITE", sent, more, times, from, i)
					}
					p.idle()
					if p.qp[1].resp.kept != 0 || p.port[1].kept.used.Load() != 0 || p.mem[1].open != 0 {
						t.Error("bytes of the READ are kept")
					}
				}
			}
		}
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// TestKeptReadFails reads memory in advance that cannot be read: the request behind the READ must not be executed.
func TestKeptReadFails(t *testing.T) {
	p := newPair(t, pairOptions{})
	p.mem[1].keys[1] = make([]byte, 100)
	p.mem[1].readErr = errTest
	p.post(0, &Work{Op: ibv.WRRead, Dst: &sink{b: make([]byte, 100)}, Length: 100, RKey: 1})
	p.post(0, &Work{Op: ibv.WRWrite, Src: &source{b: pattern(100, 1)}, Length: 100, RKey: 1})
	p.run(1000)
	if len(p.mem[0].ended) != 2 || p.mem[0].ended[0].st != rdma.StatusRemOpErr || !bytes.Equal(p.mem[1].keys[1], make([]byte, 100)) {
		t.Errorf("%+v", p.mem[0].ended)
	}
	if p.port[1].kept.used.Load() != 0 || p.mem[1].open != 0 {
		t.Error("the READ is not closed")
	}
}
