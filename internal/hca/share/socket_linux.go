package share

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/net/netconn"
)

// duplicate returns another descriptor of a file, in the same mode.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := descriptor(f)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// asFiles returns descriptors as files with a name.
func asFiles(fds []int, name string) (files []*os.File) {
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), name))
	}
	return files
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// gsiQPN is the number of the QP that management datagrams go to.
const gsiQPN = 1

// memberShift and idShift are the places of the process's number in a QP number and in a
// communication id.
const (
	memberShift = 24 - netconn.MemberBits
	idShift     = 32 - netconn.MemberBits
)

// steer attaches the filter that chooses a socket by the destination QP of a packet. The packet
// begins with the base transport header, whose second word has the number of the QP.
func steer(f *os.File) error {
	return attach(f, unix.SO_ATTACH_REUSEPORT_CBPF, []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xffffff},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: gsiQPN, Jt: 5},
		{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: memberShift},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0, Jt: 2},
		{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_K, K: 1},
		{Code: unix.BPF_RET | unix.BPF_A},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: madsIndex},
	})
}

// plug makes a socket drop everything that arrives, so that it does not fill up while no process
// has its number. unplug ends that, and empties the socket.
func plug(f *os.File) error {
	return attach(f, unix.SO_ATTACH_FILTER, []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}})
}

func unplug(f *os.File) {
	fd := int(f.Fd())
	var b [1]byte
	for range 1 << 17 { // more than a receive buffer holds
		if _, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC); err != nil {
			break
		}
	}
	// The option takes an argument that it does not use. A socket whose process was killed has
	// no filter, and the error does not matter.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
}

func attach(f *os.File, option int, filter []unix.SockFilter) error {
	err := unix.SetsockoptSockFprog(int(f.Fd()), unix.SOL_SOCKET, option, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	return os.NewSyscallError("setsockopt of a filter", err)
}
