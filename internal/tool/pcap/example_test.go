package pcap_test

import (
	"bytes"
	"fmt"

	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/internal/tool/pcap"
	"github.com/softmkey/softmkey/packetconn"
)

func Example() {
	var file bytes.Buffer
	recorder := pcap.NewRecorder(&file, nil)
	x, y := inproc.Pair(nil)
	a, b := recorder.Wrap(x), recorder.Wrap(y)
	defer a.Close()
	defer b.Close()

	if _, err := a.Send([]packetconn.Train{{Addr: b.LocalAddr(), Buf: []byte("seven bytes"), Seg: 7}}); err != nil {
		fmt.Println(err)
	}
	if _, err := b.Recv([]packetconn.Train{{Buf: make([]byte, packetconn.RecvSize)}}); err != nil {
		fmt.Println(err)
	}
	err := recorder.Close()
	fmt.Println(recorder.Packets(), "packets:", err)
	// Output: 4 packets: <nil>
}
