package draw

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
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
	fatal.If(t, err)
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
			k.Narrow = true
			wellFormed(t, k.SVG())
		}
		for _, w := range Ways(trace) {
			wellFormed(t, w.SVG())
			w.Narrow = true
			wellFormed(t, w.SVG())
		}
		for _, s := range AllStates(trace) {
			wellFormed(t, s.SVG())
		}
	})
}

// elements returns the attributes of the elements of a picture, with the text of those that have one as "".
func elements(t *testing.T, svg []byte, name string) (all []map[string]string) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return all
		}
		fatal.If(t, err)
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == name {
			attrs := map[string]string{}
			for _, a := range e.Attr {
				attrs[a.Name.Local] = a.Value
			}
			if name == "text" {
				if text, ok := must(d.Token()).(xml.CharData); ok {
					attrs[""] = string(text)
				}
			}
			all = append(all, attrs)
		}
	}
}

func must(token xml.Token, err error) xml.Token {
	if err != nil {
		panic(err)
	}
	return token
}

func parseFloat(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	fatal.If(t, err)
	return n
}

// keyOf returns the key that one request configures.
func keyOf(t *testing.T, fields string) *Key {
	t.Helper()
	trace, err := ReadTrace(strings.NewReader(umr(fields)))
	fatal.If(t, err)
	return Keys(trace)[0]
}

// TestCiphertext draws keys that sign before and after they encrypt. The pictures name the steps in their
// order, and mark what is ciphertext: blocks, and fields if they are encrypted with their blocks.
func TestCiphertext(t *testing.T) {
	const four = `"list":[{"addr":"0x1000","length":2048,"lkey":1}]`
	signed := strings.Replace(t10, `"memory_signature":{"type":"none"},"wire_signature"`, `"memory_signature"`, 1) + `,"wire_signature":{"type":"none"}`
	for _, test := range []struct {
		name, signature, tx, order string
		steps, back                []string
		hatched                    int // blocks and fields of the wire domain, and one rectangle for all of memory
	}{
		{"row B", t10, "encrypt", "before", []string{"encrypt", "sign"}, []string{"check, strip", "decrypt"}, 4},
		{"row C", t10, "encrypt", "after", []string{"sign", "encrypt"}, []string{"decrypt", "check, strip"}, 8},
		{"memory is ciphertext", t10, "decrypt", "before", []string{"decrypt", "sign"}, []string{"check, strip", "encrypt"}, 1},
		{"row H", signed, "decrypt", "before", []string{"decrypt", "check, strip"}, []string{"sign", "encrypt"}, 1 + 3},
	} {
		k := keyOf(t, fmt.Sprintf(`%s,%s,"crypto":{"tx":%q,"order":%q,"data_unit_size":520,"dek":2}`, four, test.signature, test.tx, test.order))
		if there, back := k.steps(true), k.steps(false); !slices.Equal(there, test.steps) || !slices.Equal(back, test.back) {
			t.Errorf("%s: steps %q, and back %q", test.name, there, back)
		}
		svg := k.SVG()
		wellFormed(t, svg)
		if got := bytes.Count(svg, []byte(`class="ciphertext"`)); got != test.hatched {
			t.Errorf("%s: %d hatched parts, want %d", test.name, got, test.hatched)
		}
		for i, step := range test.steps {
			if want := fmt.Sprintf(">%d. %s<", i+1, step); !bytes.Contains(svg, []byte(want)) {
				t.Errorf("%s: no %q", test.name, want)
			}
		}
	}
}

// record returns a line of a trace about QP 5.
func record(kind, action, fields string) string {
	return fmt.Sprintf(`{"time":"2026-01-02T03:04:05Z","process":1,"kind":%q,"object":"qp","number":5,"action":%q,"fields":{%s}}`, kind, action, fields) + "\n"
}

// TestStates draws the states of a queue pair, and not those of another one that had its number.
func TestStates(t *testing.T) {
	trace, err := ReadTrace(strings.NewReader(record("state", "ERR", `"from":"RESET","by":"program"`) + record("object", "create", "") +
		record("state", "INIT", `"from":"RESET","by":"program","access":["LOCAL_WRITE","REMOTE_READ"]`) + record("state", "RTR", `"from":"INIT","by":"program","remote":"10.0.0.<","dest_qp":18,"path_mtu":1024`) +
		record("state", "RTS", `"from":"RTR","by":"program","timeout":14,"retry_cnt":7,"rnr_retry":6`) + record("state", "ERR", `"from":"RTS","by":"device"`)))
	fatal.If(t, err)
	all := AllStates(trace)
	if len(all) != 2 {
		t.Fatalf("%d queue pairs", len(all))
	}
	svg := all[1].SVG()
	wellFormed(t, svg)
	for _, part := range []string{"1. RESET to INIT, by the program", "the peer may: read<", "peer: QP 0x12 at 10.0.0.&lt;, path MTU 1024", "timeout 14, retries 7, RNR retries 6", "4. RTS to ERR, by the device"} {
		if !bytes.Contains(svg, []byte(part)) {
			t.Errorf("no %q in\n%s", part, svg)
		}
	}
	apart(t, svg)
}

// TestPlainWay draws a WRITE between regions, one of inline data, and one that failed: one box for the memory of each side.
func TestPlainWay(t *testing.T) {
	trace, err := ReadTrace(strings.NewReader(record("request", "RDMA_WRITE", `"request":1,"sges":[{"addr":"0x0","length":64,"lkey":768}],"rkey":1024`) + record("completion", "success", `"request":1,"opcode":"RDMA_WRITE","bytes":64`) +
		record("request", "RDMA_WRITE", `"request":2,"inline":8,"rkey":1024`) +
		record("request", "RDMA_WRITE", `"request":3,"sges":[{"addr":"0x0","length":64,"lkey":768}],"rkey":1024`) + record("completion", "local protection error", `"request":3,"opcode":"RDMA_WRITE"`)))
	fatal.If(t, err)
	ways := Ways(trace)
	if len(ways) != 3 || ways[0].Bytes != 64 || ways[0].Status != "success" || ways[1].Bytes != 8 {
		t.Fatalf("%+v", ways)
	}
	for i, parts := range [][]string{{"requester: region 0x300", "responder: region 0x400", "64 bytes, as they are on the wire"}, {"requester: inline data", "8 bytes on the wire"}, {"local protection error: this is the way that was asked for"}} {
		svg := ways[i].SVG()
		wellFormed(t, svg)
		for _, part := range append(parts, ">memory<") {
			if !bytes.Contains(svg, []byte(part)) {
				t.Errorf("no %q in\n%s", part, svg)
			}
		}
		apart(t, svg)
	}
}

// TestKeyLabels checks that reference tags have all their digits, that pieces have numbers and, up to twelve,
// colours of their own, and that labels of one line do not touch.
func TestKeyLabels(t *testing.T) {
	var pieces []string
	for i := range 12 {
		pieces = append(pieces, fmt.Sprintf(`{"addr":"%#x","length":512,"lkey":1}`, 0x1000*(i+1)))
	}
	svg := keyOf(t, `"list":[`+strings.Join(pieces, ",")+"],"+t10).SVG()
	for _, part := range []string{">ref 0x00000007<", ">ref 0x0000000e<", ">application tag 0x0001<", "12 pieces", ">7: +3584<"} {
		if !bytes.Contains(svg, []byte(part)) {
			t.Errorf("no %q in\n%s", part, svg)
		}
	}
	colours := map[pair]bool{}
	for _, p := range palette {
		colours[p] = true
	}
	if len(colours) < 12 {
		t.Errorf("%d colours", len(colours))
	}
	narrow := keyOf(t, list+","+t10)
	narrow.Narrow, narrow.Bad = true, []Bad{{Kind: "bad guard", Domain: "wire", Block: 50, Offset: 26000, Stored: 1, Computed: 2}}
	for _, svg := range [][]byte{svg, keyOf(t, stride).SVG(), keyOf(t, list+","+t10).SVG(), narrow.SVG()} {
		apart(t, svg)
	}
}

// apart checks that the texts of a picture do not touch. A character is taken for 0.62 times the size of its type.
func apart(t *testing.T, svg []byte) {
	t.Helper()
	type box struct {
		text           string
		x1, x2, y1, y2 float64
	}
	var boxes []box
	for _, e := range elements(t, svg, "text") {
		size := parseFloat(t, e["font-size"])
		x, y, w := parseFloat(t, e["x"]), parseFloat(t, e["y"]), float64(len(e[""]))*size*0.62
		switch e["text-anchor"] {
		case "middle":
			x -= w / 2
		case "end":
			x -= w
		}
		b := box{e[""], x, x + w, y - size*0.8, y + size*0.2}
		for _, o := range boxes {
			if b.x1 < o.x2 && o.x1 < b.x2 && b.y1 < o.y2 && o.y1 < b.y2 {
				t.Errorf("%q touches %q", b.text, o.text)
			}
		}
		boxes = append(boxes, b)
		if b.x2 > 1265 {
			t.Errorf("%q ends at %.0f", b.text, b.x2)
		}
	}
}

// TestWayBad draws a bad block of each domain of both sides. The box that describes it is below its domain and
// above the next one.
func TestWayBad(t *testing.T) {
	for _, domain := range []string{"memory", "wire"} {
		for _, remote := range []bool{false, true} {
			text := umr(list+","+t10) + strings.ReplaceAll(umr(list+","+t10), `"mkey":256`, `"mkey":512`) +
				`{"time":"2026-01-02T03:04:06Z","kind":"request","object":"qp","number":5,"action":"RDMA_READ","fields":{"request":1,"sges":[{"addr":"0x0","length":4160,"lkey":256}],"rkey":512}}` + "\n" +
				fmt.Sprintf(`{"time":"2026-01-02T03:04:07Z","kind":"signature","object":"mkey","number":%d,"action":"bad guard","fields":{"qp":5,"domain":%q,"block":3,"offset":1560,"stored":"0x1","computed":"0x2"}}`,
					map[bool]int{false: 256, true: 512}[remote], domain)
			trace, err := ReadTrace(strings.NewReader(text))
			fatal.If(t, err)
			svg := Ways(trace)[0].SVG()
			wellFormed(t, svg)
			var bad, box map[string]string
			for _, e := range elements(t, svg, "rect") {
				switch {
				case e["class"] == "bad":
					bad = e
				case e["id"] == "bad-block":
					box = e
				}
			}
			if bad == nil || box == nil {
				t.Fatalf("%s, remote %v: no bad block, or no box", domain, remote)
			}
			if gap := parseFloat(t, box["y"]) - parseFloat(t, bad["y"]) - boxHeight; gap < 0 || gap > 20 {
				t.Errorf("%s, remote %v: the box is %.0f below its block", domain, remote, gap)
			}
			apart(t, svg)
		}
	}
}
