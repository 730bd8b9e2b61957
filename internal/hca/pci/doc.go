// Package pci is a ConnectX-6 Dx virtual function as a guest's PCI bus sees it:
// configuration space, registers, command queue, event queues, and the commands of the
// mlx5_core, mlx5e and mlx5_ib drivers.
//
// A [Device] does not know how the guest reaches it. Its transport calls it for each access
// of the configuration space and of BAR 0, and gives it the guest's memory and interrupts
// ([Device.Attach]). Package vfiouser is a transport; tests replay recorded boots.
//
// # Commands
//
// The driver writes commands to a queue in the guest's memory and rings a register. A
// goroutine executes them one after the other, while the registers stay usable, and ends
// when all are answered. Commands that make RDMA objects are those of package adapter; this
// package has the ones that only a PCI function has.
//
// # The guest's memory
//
// Everything that the guest may change is copied before it is decoded. Memory that is not
// there costs the queue that lies in it: a command queue that cannot be read makes the
// health registers report a fatal error, and nothing else is touched.
package pci
