// Umladapter is `softmkey pci` for a kernel in User-mode Linux, which reaches the adapter by its option
// virtio_uml.device=SOCKET:1234. interop/uml.sh makes such a kernel.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/frames"
	"github.com/softmkey/softmkey/internal/hca/pci"
	"github.com/softmkey/softmkey/internal/hca/pci/vm"
	"github.com/softmkey/softmkey/internal/hca/trace"
	"github.com/softmkey/softmkey/interop/umlpci"
)

func main() {
	socket := flag.String("socket", "", "`PATH` of the socket that the kernel connects to")
	network := flag.String("net", "", "`NETWORK` of the adapter: a tap device, or unix:PATH")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *socket, *network); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "umladapter:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, socket, network string) error {
	mac, err := vm.MAC(socket)
	if err != nil {
		return err
	}
	w := trace.New(os.Stderr, nil, trace.Options{Reasons: true})
	defer w.Close()
	link, err := frames.Open(network)
	if err != nil {
		return err
	}
	l, err := unixsocket.Listen("unix", socket)
	if err != nil {
		return errors.Join(err, link.Close())
	}
	return vm.Serve(ctx, l, vm.Options{Link: link, Device: pci.Config{MAC: mac, Tracer: w, Options: adapter.Options{AdapterReports: true}}, Server: umlpci.Serve})
}
