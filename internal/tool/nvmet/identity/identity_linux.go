package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// machine returns what is unique to this machine: machine-id(5) or, without one, the number of the boot, with which
// identifiers change at the next boot.
func machine() string {
	return firstLine("/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id")
}

// facts returns what makes an image one of this machine's files or block devices.
//
// Of a file, these are its file system, the device of that, its inode, and the time at which the inode was made:
// virtual machines and containers that were cloned share a machine-id, and often the numbers of inodes. A copy of a
// file system that both machines mount is on another device.
func facts(f *os.File) ([]string, error) {
	var s unix.Statx_t
	var fs unix.Statfs_t
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	if control := raw.Control(func(fd uintptr) {
		if err = unix.Statx(int(fd), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &s); err == nil {
			err = unix.Fstatfs(int(fd), &fs)
		}
	}); control != nil {
		return nil, control
	}
	if err != nil {
		return nil, &os.PathError{Op: "statx", Path: f.Name(), Err: err}
	}
	if s.Mode&unix.S_IFMT == unix.S_IFBLK {
		return []string{"device", device(s.Rdev_major, s.Rdev_minor)}, nil
	}
	list := []string{"file", fmt.Sprint(fs.Fsid), fmt.Sprint(s.Ino), ""}
	if s.Mask&unix.STATX_BTIME != 0 {
		list[3] = fmt.Sprint(s.Btime.Sec, " ", s.Btime.Nsec)
	}
	if s.Dev_major != 0 { // others are numbers that the kernel chooses at each mount
		list = append(list, device(s.Dev_major, s.Dev_minor))
	}
	return list, nil
}

// device returns what identifies a block device on this machine. A logical volume or a disk has an identifier. A loop
// device has a file, and an offset at which it begins there. The number of the partition follows. A device without any of
// these is identified by its own number.
func device(major, minor uint32) string {
	number := fmt.Sprint(major, ":", minor)
	dir := filepath.Join("/sys/dev/block", number)
	if id := firstLine(dir + "/dm/uuid"); id != "" {
		return id
	}
	part, disk := firstLine(dir+"/partition"), dir
	if part != "" {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			disk = filepath.Dir(real)
		}
	}
	id := firstLine(disk+"/wwid", disk+"/device/wwid", disk+"/serial", disk+"/device/serial")
	if path := firstLine(disk + "/loop/backing_file"); path != "" {
		id = backing(path) + " " + firstLine(disk+"/loop/offset")
	}
	if id != "" {
		return id + " " + part
	}
	return number
}

// backing returns what identifies the file of a loop device, whose path it takes: the facts of the file. A file that has
// been removed is identified by its path.
func backing(path string) string {
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return path
	}
	defer f.Close()
	list, err := facts(f)
	if err != nil {
		return path
	}
	return strings.Join(list, " ")
}
