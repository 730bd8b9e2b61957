package transport

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
	"github.com/softmkey/softmkey/operr"
)

// maxDescriptors is the number of descriptors that a message may have.
const maxDescriptors = 8

// Socket reads the messages of a client.
type Socket struct {
	*net.UnixConn

	// FDs came with the message that was read last and have no owner. Who takes one puts -1 in
	// its place.
	FDs []int
}

// Serve calls one, which reads and answers a message, until the client closes the socket or the
// context ends. It closes the socket when the context ends. The error is nil if the client has gone.
func (s *Socket) Serve(ctx context.Context, one func() error) error {
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	for {
		err := one()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
			return nil
		default:
			return err
		}
	}
}

// ReadHead reads the head of a message and the descriptors of the message, which come with its
// first byte. io.EOF: the client has gone.
func (s *Socket) ReadHead(head []byte) error {
	var oob [256 + 4*maxDescriptors]byte
	n, oobn, flags, _, err := s.ReadMsgUnix(head, oob[:])
	if oobn > 0 {
		fds, err := unixsocket.Descriptors(oob[:oobn])
		s.FDs = append(s.FDs, fds...)
		if err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	case flags&unix.MSG_CTRUNC != 0:
		return failure.New("receive from a virtual machine", syscall.EPROTO, "a message has more than %d descriptors", maxDescriptors)
	}
	_, err = io.ReadFull(s.UnixConn, head[n:])
	return err
}

// Take returns descriptor i, which belongs to the caller from then on. It does not block.
func (s *Socket) Take(i int) (int, error) {
	fd := s.FDs[i]
	if err := unix.SetNonblock(fd, true); err != nil {
		return -1, err
	}
	s.FDs[i] = -1
	return fd, nil
}

// CloseDescriptors closes the descriptors that nobody has taken.
func (s *Socket) CloseDescriptors() {
	for _, fd := range s.FDs {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	s.FDs = s.FDs[:0]
}

// memoryFileSystems are the file systems whose files can be a guest's memory. An access to a mapped file
// waits until the file system has read the page. The kernel's own file systems read from memory or from
// a local disk. A file system that is a program (FUSE) or a server (NFS), or lies on one (overlayfs), may
// never answer; the thread that waits cannot be interrupted, and neither the client's end nor the end of
// this process would take effect.
var memoryFileSystems = map[int64]bool{
	unix.TMPFS_MAGIC: true, unix.RAMFS_MAGIC: true, unix.HUGETLBFS_MAGIC: true, // memfd_create's files are in one of these
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
}

// checkMemoryFile refuses a file on which an access could wait for ever.
func checkMemoryFile(op string, fd int, st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return failure.New(op, syscall.EINVAL, "a file of mode %#o: must be a regular file, for example of memfd_create", st.Mode)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	if typ := int64(fs.Type) & math.MaxUint32; !memoryFileSystems[typ] { // a word of 32 bits is signed
		return failure.New(op, syscall.EINVAL, "a file in a file system of type %#x: accesses might wait for ever; the memory must be a memfd, or a file in tmpfs, hugetlbfs, ext4, xfs, btrfs or f2fs", typ)
	}
	return nil
}

// MapFile adds size bytes at an offset of a file to the guest's memory, at address addr. The
// client may truncate the file later: then guestmem.Map refuses accesses. EINVAL: the file does
// not have these bytes, cannot be mapped, or is in a file system that may not answer.
func MapFile(m *guestmem.Map, fd int, offset, addr, size uint64, readOnly bool) error {
	const op = "map guest memory"
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := checkMemoryFile(op, fd, &st); err != nil {
		return err
	}
	if size == 0 || offset%uint64(os.Getpagesize()) != 0 || offset+size < offset || offset+size > uint64(st.Size) || size > math.MaxInt {
		return failure.New(op, syscall.EINVAL, "%#x bytes at %#x of a file with %#x", size, offset, st.Size)
	}
	prot := unix.PROT_READ
	if !readOnly {
		prot |= unix.PROT_WRITE
	}
	view, err := unix.Mmap(fd, int64(offset), int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return &operr.Error{Op: op, Errno: syscall.EINVAL, Reason: "the descriptor cannot be mapped", Err: err}
	}
	r := guestmem.Range{Addr: addr, Size: size, ReadOnly: readOnly, View: view, Release: func() { unix.Munmap(view) }}
	if err := m.Add(r); err != nil {
		r.Release()
		return err
	}
	return nil
}
