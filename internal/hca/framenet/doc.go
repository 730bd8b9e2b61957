// Package framenet is a network of RoCEv2 packets in whole Ethernet frames. A [Network]
// stands at one end of a link of frames. Its connections have IP and MAC addresses of their
// own, which the host need not have, and come and go while the link is in use.
//
// A connection sends a packet to the MAC address that its route names
// (packetconn.Route): there is no address resolution here. A packet to a MAC address of the
// network itself does not leave it.
package framenet
