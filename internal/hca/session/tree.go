//go:build linux && (amd64 || arm64)

package session

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// treePattern names the folders of the devices' files.
const treePattern = "softmkey-run-*"

// treeFolders returns the folders in which the tree may be created: in memory, where
// files cost a tenth of those on a disk, or in the user's folder for temporary files.
func treeFolders() []string { return []string{"/dev/shm", os.TempDir()} }

// treeRoom is how many bytes a folder must have room for: the files of a few devices, whose blocks
// have 4 KiB each. treeFiles is their number.
const (
	treeRoom  = 4 << 20
	treeFiles = 2000
)

// newTree makes a folder for the devices' files, and locks it. The guard removes the folder if
// this process is killed. If both are killed, the next run removes it, because it is no longer
// locked. The lock lasts as long as the returned file is open.
func newTree() (folder string, lock *os.File, err error) {
	for _, parent := range treeFolders() {
		removeLeft(parent)
		for range 10 {
			if folder, err = os.MkdirTemp(parent, treePattern); err != nil {
				break
			}
			if lock = lockTree(folder); lock == nil {
				err = syscall.EAGAIN // another run took the folder for one whose run was killed
				continue
			}
			if err = room(folder); err == nil {
				return folder, lock, nil
			}
			os.RemoveAll(folder)
			lock.Close()
			break
		}
	}
	return "", nil, fmt.Errorf("run: the files of the devices: %w", err)
}

// room returns an error if a folder has no room for a tree. It allocates the room for a moment,
// so that quotas count too.
func room(folder string) error {
	var fs unix.Statfs_t
	if unix.Statfs(folder, &fs) == nil && fs.Files > 0 && fs.Ffree < treeFiles {
		return fmt.Errorf("%s: room for %d files only", filepath.Dir(folder), fs.Ffree)
	}
	f, err := os.Create(filepath.Join(folder, "room"))
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), 0, 0, treeRoom)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		_, err = f.Write(make([]byte, treeRoom))
	}
	if err != nil {
		return fmt.Errorf("%s has no room: %w", filepath.Dir(folder), err)
	}
	return nil
}

// lockTree locks a folder and returns it; nil if another process has it locked or
// has removed it.
func lockTree(folder string) *os.File {
	f, err := os.OpenFile(folder, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	var here, now unix.Stat_t
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && unix.Fstat(int(f.Fd()), &here) == nil &&
		unix.Lstat(folder, &now) == nil && here.Ino == now.Ino && int(here.Uid) == os.Geteuid() {
		return f
	}
	f.Close()
	return nil
}

// removeLeft removes the folders of this user's runs that were killed.
func removeLeft(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, treePattern))
	for _, folder := range left {
		if lock := lockTree(folder); lock != nil {
			os.RemoveAll(folder)
			lock.Close()
		}
	}
}
