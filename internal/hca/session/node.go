//go:build linux && (amd64 || arm64)

package session

import (
	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/intercept"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
)

// uverbsNode is the node of a device.
type uverbsNode struct{ *uverbs.Device }

func (n uverbsNode) Major() uint32 { major, _ := n.Number(); return major }
func (n uverbsNode) Minor() uint32 { _, minor := n.Number(); return minor }

func (n uverbsNode) Open(c *intercept.Call) (intercept.File, error) {
	process, err := c.Memory()
	if err != nil {
		return nil, err
	}
	f, err := n.Device.Open(process)
	if err != nil {
		return nil, err
	}
	return uverbsFile{f}, nil
}

// uverbsFile is one open of a device's node.
type uverbsFile struct{ *uverbs.File }

func (f uverbsFile) Ioctl(c *intercept.Call, arg uint64) {
	if errno := f.File.Ioctl(c, arg); errno != 0 {
		c.Fail(errno)
		return
	}
	c.Return(0)
}

func (f uverbsFile) Write(c *intercept.Call, _ []byte) { c.Fail(unix.EINVAL) }
func (f uverbsFile) Released()                         { f.Close() }
