package inproc_test

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// The addresses need not belong to the host.
func ExampleNetwork_Listen() {
	network := inproc.NewNetwork(nil)
	a, err := network.Listen(netip.MustParseAddrPort("10.0.0.1:4791"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	fmt.Println(a.LocalAddr())

	_, err = network.Listen(a.LocalAddr())
	fmt.Println(errors.Is(err, syscall.EADDRINUSE), err)
	// Output:
	// 10.0.0.1:4791
	// true in-process listen: 10.0.0.1:4791 is taken
}
