// Package pump moves a device: it finds the doorbells that programs ring, handles the packets
// of the device's socket, and sleeps when there is nothing to do.
//
// A doorbell is a store to memory, which no system call announces. A [Pump] has one thread,
// which polls the contexts of the device while programs are active. When they are not, it
// sleeps under hardware watchpoints on the registers that they ring, or for short times where
// there are none. A context whose memory may wait for another process gets a thread of its
// own. The package does not know how programs reach the device: a context is a [Context], and
// its registers are addresses in a process.
package pump
