package draw

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// wellFormed ends the test if a picture is not well-formed XML.
func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}

// umr returns the record of a request that configures memory key 256.
func umr(fields string) string {
	return `{"time":"2026-01-02T03:04:05Z","process":1,"kind":"request","object":"qp","number":5,"action":"UMR","fields":{"request":0,"mkey":256,` + fields + "}}\n"
}

const (
	t10    = `"memory_signature":{"type":"none"},"wire_signature":{"type":"t10dif","block_size":512,"field_size":8,"app_tag":1,"ref_tag":7,"ref_tag_increments":true}`
	list   = `"list":[{"addr":"0x1000","length":1536,"lkey":1},{"addr":"0x9000","length":49664,"lkey":1}]`
	stride = `"interleaved":{"repeat":4,"entries":[{"addr":"0x1000","length":512,"step":520,"lkey":1},{"addr":"0x1200","length":8,"step":520,"lkey":1}]}`
)

// TestKeys reads configurations: one that changes the signature alone keeps the layout, and a
// bad block belongs to the configuration before it.
func TestKeys(t *testing.T) {
	text := umr(list+","+t10) + umr(`"wire_signature":{"type":"crc32c","block_size":4096,"field_size":4}`) +
		`{"time":"2026-01-02T03:04:06Z","process":1,"kind":"signature","object":"mkey","number":257,"action":"bad guard","fields":` +
		`{"qp":9,"domain":"wire","block":11,"offset":45100,"stored":"0xffffffffffffffff","computed":"0x1","reported":false}}` + "\n" + umr(stride)
	trace, err := ReadTrace(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	keys := Keys(trace)
	if len(keys) != 3 || len(keys[0].Bad) != 0 || len(keys[1].Bad) != 1 || len(keys[1].Pieces) != 2 || len(keys[2].expanded().Pieces) != 8 || keys[2].expanded().Pieces[2].Addr != 0x1000+520 {
		t.Fatalf("keys: %+v", keys)
	}
	if g := keys[0].geometry(); g != (geometry{memory: 51200, blocks: 100, data: 512, memStep: 512, wire: 52000, step: 520}) {
		t.Errorf("geometry: %+v", g)
	}
	// 12 whole blocks, of which the last 8 are around the bad one.
	if from, to := keys[1].window(keys[1].geometry()); from != 4 || to != 12 {
		t.Errorf("blocks %d to %d are shown", from, to)
	}
	svg := keys[1].SVG()
	wellFormed(t, svg)
	for _, part := range []string{"bad guard in block 11, wire offset 45100", "0xffffffffffffffff", "entry 1 +43520", "blocks 4 to 11 of 12"} {
		if !bytes.Contains(svg, []byte(part)) {
			t.Errorf("no %q in\n%s", part, svg)
		}
	}
	if _, err := ReadTrace(strings.NewReader("03:04:05 42 qp\n")); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a trace in text: %v", err)
	}
}

// FuzzTrace draws traces with any content. Nothing may panic, and pictures must be well-formed.
func FuzzTrace(f *testing.F) {
	for _, text := range []string{
		umr(list + "," + t10), umr(stride), umr(`"interleaved":{"repeat":4294967295,"entries":[{"addr":"0x0","length":4294967295,"step":1,"lkey":1}]},` + t10),
		umr(`"list":[],"wire_signature":{"type":"t10dif"}`), umr(`"list":[{"addr":"0x0","length":0,"lkey":0}],"crypto":{"tx":"encrypt","data_unit_size":0}`),
		umr(list+","+t10) + `{"time":"2026-01-02T03:04:06Z","kind":"signature","number":256,"action":"<&>","fields":{"domain":"memory","block":18446744073709551615,"offset":1}}` + "\n" +
			fmt.Sprintf(`{"time":%q,"kind":"request","object":"qp","number":5,"action":"RDMA_READ","fields":{"request":1,"sges":[{"addr":"0x0","length":4160,"lkey":256}],"rkey":256}}`, time.Unix(0, 0).UTC().Format(time.RFC3339)),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := ReadTrace(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, k := range Keys(trace) {
			wellFormed(t, k.SVG())
		}
		for _, w := range Ways(trace) {
			wellFormed(t, w.SVG())
		}
	})
}
