//go:build linux && (amd64 || arm64)

package intercept

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// fdRange is a range of numbers of descriptors. Sockets of NETLINK_RDMA have its first netlinkFDs
// numbers, devices those after them.
type fdRange struct{ first, last int }

const netlinkFDs = 16

// fdRanges are the numbers of the descriptors of devices, so that the filter notifies the
// supervisor only of writes and fstats on descriptors that may be a device's. A copy that a
// program makes with dup gets a number in them, too. A filter cannot be changed while programs run,
// so that the ranges beyond the usual one are there for programs with many open files, and the one
// below it for those with a low limit.
var fdRanges = [...]fdRange{{200, 255}, {600, 1023}, {1900, 2047}, {3900, 4095}, {16000, 16383}, {65000, 65535}}

// usualRange is the index of the range that is tried first.
const usualRange = 1

// rangeOrder returns the ranges in the order in which free numbers are looked for.
func rangeOrder() []fdRange {
	return slices.Concat(fdRanges[usualRange:], fdRanges[:usualRange])
}

func (r fdRange) devices() fdRange { return fdRange{r.first + netlinkFDs, r.last} }
func (r fdRange) sockets() fdRange { return fdRange{r.first, r.first + netlinkFDs - 1} }

// verbsIoctl is RDMA_VERBS_IOCTL of <rdma/rdma_user_ioctl_cmds.h>.
const verbsIoctl = 0xc0181b01

const (
	netlinkRDMA = 20 // NETLINK_RDMA of <linux/netlink.h>

	retAllow  = unix.SECCOMP_RET_ALLOW
	retNotify = unix.SECCOMP_RET_USER_NOTIF
)

// program builds a classic BPF program with forward jumps to labels.
type program struct {
	code   []unix.SockFilter
	labels map[string]int
	jumps  []jump
}

type jump struct {
	at      int
	yes, no string // empty: the next instruction
}

func (p *program) label(name string) { p.labels[name] = len(p.code) }

func (p *program) load(offset uint32) {
	p.code = append(p.code, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

func (p *program) and(mask uint32) {
	p.code = append(p.code, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask})
}

func (p *program) jumpIf(op uint16, k uint32, yes, no string) {
	p.jumps = append(p.jumps, jump{len(p.code), yes, no})
	p.code = append(p.code, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k})
}

func (p *program) ret(k uint32) {
	p.code = append(p.code, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k})
}

// inRanges notifies of a call whose first argument is in one of the parts of fdRanges, which ascend.
func (p *program) inRanges(name string, part func(fdRange) fdRange) {
	p.load(argument(0))
	for i, r := range fdRanges {
		r, next := part(r), fmt.Sprintf("%s%d", name, i+1)
		p.jumpIf(unix.BPF_JGE, uint32(r.first), "", "allow2")
		p.jumpIf(unix.BPF_JGT, uint32(r.last), next, "notify")
		p.label(next)
	}
	p.ret(retAllow)
}

// link fills in the jumps. The program is far shorter than the 255 instructions
// that a conditional jump can skip.
func (p *program) link() []unix.SockFilter {
	to := func(at int, name string) uint8 {
		if name == "" {
			return 0
		}
		return uint8(p.labels[name] - at - 1)
	}
	for _, j := range p.jumps {
		p.code[j.at].Jt, p.code[j.at].Jf = to(j.at, j.yes), to(j.at, j.no)
	}
	return p.code
}

// The offsets in struct seccomp_data.
const (
	dataNr   = 0
	dataArch = 4
)

// argument returns the offset of the low half of system call argument i on the
// little-endian architectures that this package supports.
func argument(i uint32) uint32 { return 16 + 8*i }

// filter returns the program that chooses the system calls to be notified. With memory, those that
// change mappings are among them.
func filter(memory bool) []unix.SockFilter {
	p := &program{labels: map[string]int{}}
	p.load(dataArch)
	p.jumpIf(unix.BPF_JEQ, auditArch, "", "allow")
	p.load(dataNr)
	if foreignABI != 0 {
		p.jumpIf(unix.BPF_JGE, foreignABI, "allow", "")
	}
	for _, c := range calls {
		if c.handle != nil || memory {
			p.jumpIf(unix.BPF_JEQ, c.nr, cmp.Or(c.where, "notify"), "")
		}
	}
	p.label("allow")
	p.ret(retAllow)

	p.label("fcntl")
	p.load(argument(1))
	p.jumpIf(unix.BPF_JEQ, unix.F_DUPFD, "descriptor", "")
	p.jumpIf(unix.BPF_JEQ, unix.F_DUPFD_CLOEXEC, "descriptor", "allow2")

	p.label("descriptor")
	p.inRanges("device", func(r fdRange) fdRange { return r })

	p.label("ioctl")
	p.load(argument(1))
	p.jumpIf(unix.BPF_JEQ, verbsIoctl, "notify", "allow2")

	// Only mappings of files, without those of the dynamic loader.
	p.label("mmap")
	if memory {
		p.load(argument(3))
		p.and(unix.MAP_FIXED)
		p.jumpIf(unix.BPF_JEQ, unix.MAP_FIXED, "notify", "")
	}
	p.load(argument(3))
	p.and(unix.MAP_ANONYMOUS | unix.MAP_DENYWRITE)
	p.jumpIf(unix.BPF_JEQ, 0, "notify", "allow2")

	if memory { // the advice that discards pages
		p.label("madvise")
		p.load(argument(2))
		for _, advice := range []uint32{unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_REMOVE} {
			p.jumpIf(unix.BPF_JEQ, advice, "notify", "")
		}
		p.ret(retAllow)
	}

	p.label("socket")
	p.load(argument(0))
	p.jumpIf(unix.BPF_JEQ, unix.AF_NETLINK, "", "allow2")
	p.load(argument(2))
	p.jumpIf(unix.BPF_JEQ, netlinkRDMA, "notify", "allow2")

	p.label("netlink")
	p.inRanges("socket", fdRange.sockets)

	p.label("allow2")
	p.ret(retAllow)
	p.label("notify")
	p.ret(retNotify)
	return p.link()
}
