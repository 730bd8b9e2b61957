// Package intercept runs a program and answers the system calls that reach for
// devices which do not exist.
//
// [Start] starts the program under a seccomp filter. The filter hands the calls
// that name a file, and those on descriptors of our devices, to this process as
// user notifications; every other call runs at full speed. A file below a folder
// that the supervisor owns, as /sys/class/infiniband, comes from a tree on disk
// ([Config.Root]). A device file is a [Node] of the caller's: the program's open
// makes a [File], which answers ioctl, write and mmap. One supervisor serves the
// program, all its threads and everything it starts.
//
// # Descriptors
//
// A device's descriptor is an ordinary file that the supervisor puts into the
// program: a memfd, whose pages the program maps, or a pipe, which it polls. The
// supervisor recognises it by the inode, so that dup, fork and passing over a
// socket work. It learns from inotify when the last copy is gone, or looks at /proc
// periodically if the user has no inotify instance left. stat shows a character device.
// Opening /proc/self/fd/N of it opens the device again.
//
// A program that asks for a socket of NETLINK_RDMA gets one of NETLINK_USERSOCK, a protocol in which processes may write
// to each other ([Config.Netlink]). Its descriptor has a number in a range of its own: the filter lets all other numbers
// send without the supervisor.
//
// # Limits
//
// It is no security boundary: a program can change a path between the check and
// the kernel's use of it, and io_uring is not intercepted. 32-bit programs
// see the system's own files: [LookPath] refuses to start one, but the program may. Only one
// user-notify supervisor can serve a task.
package intercept
