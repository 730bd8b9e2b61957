// Package rig runs Linux's soft-RoCE as a peer: it boots guests (package guest)
// in qemu and joins them to the calling process by a bridge and one tap device
// for each.
//
// All of it happens in a network namespace without a name, which lives as long
// as the processes in it. A test binary enters one in its TestMain, with
// [Main]; from then on every socket it opens, and every program it starts, is
// in there. When the binary ends, however it ends, the kernel ends qemu with it
// and removes namespace, bridge and taps: there is nothing to clean up, and
// nothing of the host's network is touched.
//
//	func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }
//
//	func TestPeer(t *testing.T) {
//		r, err := rig.Start(t.Context(), rig.Options{})
//		...
//		defer r.Close()
//		session, err := peer.Dial(t.Context(), r.Guests[0].Addr4)
//		...
//	}
//
// The guests are at 10.91.0.2, 10.91.0.3, … and fd91::2, fd91::3, …, this
// process is at 10.91.0.1 and fd91::1. It needs root and what setup.sh brings.
//
// # Frames on the tap
//
// The driver of a tap takes no UDP segmentation offload, so the kernel cuts a
// train of datagrams that was sent with UDP_SEGMENT before it enters the tap:
// the guest, the impairments and a capture see one frame for each packet, with
// the identification that it has on a wire.
//
// # Impairments
//
// [Guest.Impair] loses, reorders, duplicates or corrupts packets in both
// directions. It uses the guest's netem, whose module comes with Debian's
// kernel, rather than the host's, which a host may not have.
package rig
