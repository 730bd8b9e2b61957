// Package outfile writes output files that appear under their name when they are
// complete, and not before.
//
// [Create] opens an output. [File.Commit] gives the finished file its name, and replaces
// a file of that name; [File.Abandon] removes the unfinished file and leaves an old one as it
// was. An output that is not a regular file, such as a device or a pipe, is written
// directly.
//
// # How a file appears
//
// On Linux the file has no name while it is written (O_TMPFILE), if the file system
// supports that: the kernel removes it when the process ends, even by SIGKILL.
// Commit gives it its name with linkat, or with linkat and rename if it replaces
// a file. Elsewhere the file has a temporary name in the same directory until
// Commit renames it, and a process that is killed leaves it there.
//
// # Locks
//
// A file that will be replaced and a block device are locked against other commands until
// the output is committed or abandoned (package filelock): the file that a server writes
// to is not replaced.
//
// # Power loss
//
// Commit flushes the file's data to the disk before the file gets its name, and the
// directory afterwards (fsync). After a power loss there is either the old file or
// the new one, complete. [Options.RiskPowerLoss] leaves both flushes out.
package outfile
