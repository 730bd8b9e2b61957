// Package rig runs Linux's soft-RoCE as a peer. It boots a guest (package guest) in qemu and
// connects it to the calling process with a bridge and a tap device.
//
// The rig lives in a network namespace without a name, which exists as long as the processes
// in it. A test binary enters the namespace in its TestMain with [Main]; its sockets, and the
// programs that it starts, are then inside. When the binary ends, in any way, the kernel ends
// qemu with it and removes namespace, bridge and taps. Nothing has to be cleaned up, and the
// host's network is not touched.
//
//	func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }
//
//	func TestPeer(t *testing.T) {
//		r, err := rig.Start(t.Context())
//		...
//		defer r.Close()
//		session, err := peer.Dial(t.Context(), r.Guest.Addr4)
//		...
//	}
//
// The guest has the addresses 10.91.0.2 and fd91::2; this
// process has 10.91.0.1 and fd91::1. The rig needs root and the packages of setup.sh.
//
// # Frames on the tap
//
// The tap driver has no UDP segmentation offload, so the kernel segments a train of
// datagrams that was sent with UDP_SEGMENT before it enters the tap. The guest, the
// impairments and a capture see one frame for each packet, with the identification that it
// would have on a wire.
//
// # Impairments
//
// [Guest.Impair] drops, reorders, duplicates or corrupts packets in both directions. It uses
// netem in the guest, because Debian's kernel includes that module and the host's kernel may
// not.
package rig
