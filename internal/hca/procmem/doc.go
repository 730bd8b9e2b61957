// Package procmem reads and writes the memory of another process, in batches.
//
// A transfer is complete or an error: EFAULT if a byte is not mapped or not
// writable, ESRCH if the process is gone. Another thread of the process can unmap
// or change the memory at any time; nothing here keeps it.
package procmem
