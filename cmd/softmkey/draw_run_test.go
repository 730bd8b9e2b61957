//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// texts returns the texts of a picture, which must be well-formed XML.
func texts(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []string
	d := xml.NewDecoder(f)
	for {
		token, err := d.Token()
		if err == io.EOF {
			return strings.Join(all, "\n")
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text, ok := token.(xml.CharData); ok && len(bytes.TrimSpace(text)) > 0 {
			all = append(all, string(text))
		}
	}
}

// tracedRun runs a program with a trace and a recording. It returns the names of both files, and
// the program's output.
func tracedRun(t *testing.T, softmkey, command string, more ...string) (trace, recording string, out []byte) {
	t.Helper()
	dir := t.TempDir()
	trace, recording = filepath.Join(dir, "run.json"), filepath.Join(dir, "run.pcapng")
	args := append([]string{"run", "--device", ownAddress(8), "--trace=" + trace, "--trace-format", "json", "--pcap", recording}, more...)
	c := exec.CommandContext(t.Context(), softmkey, append(args, "--", "sh", "-c", command)...)
	c.Env = append(os.Environ(), "ADDR="+ownAddress(8))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return trace, recording, out
}

// TestDrawKey draws the key of an example that finds a bad block: the picture has the numbers that
// the program printed.
func TestDrawKey(t *testing.T) {
	program := builtProgram(t)
	trace, _, out := tracedRun(t, program, buildExample(t, "pipelining"))
	want := regexp.MustCompile(`a bad guard at offset (\d+)`).FindSubmatch(out)
	if want == nil {
		t.Fatalf("the program printed no bad block: %s", out)
	}
	for _, picture := range []string{"key", "way"} {
		svg := filepath.Join(t.TempDir(), picture+".svg")
		if out, err := exec.Command(program, "draw", "--picture", picture, "-o", svg, trace).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := texts(t, svg)
		for _, part := range []string{
			fmt.Sprintf("bad guard in block 5, wire offset %s", want[1]), "memory domain", "wire domain", "T10-DIF, 512+8",
		} {
			if !strings.Contains(got, part) {
				t.Errorf("%s: no %q in\n%s", picture, part, got)
			}
		}
	}
	if out, err := exec.Command(program, "draw", "--number", "1", trace).CombinedOutput(); err == nil || !strings.Contains(string(out), "no configuration of a memory key with the numbers of --number") {
		t.Errorf("a key that is not there: %v: %s", err, out)
	}
}

// TestDrawWay draws an RDMA READ through the keys of both sides: the picture has their four domains.
func TestDrawWay(t *testing.T) {
	program := builtProgram(t)
	trace, _, _ := tracedRun(t, program, buildExample(t, "domains"))
	svg := filepath.Join(t.TempDir(), "way.svg")
	if out, err := exec.Command(program, "draw", "-o", svg, trace).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := texts(t, svg)
	for part, n := range map[string]int{
		"requester: memory key": 1, "responder: memory key": 1, "memory domain": 2, "wire domain": 2, "T10-DIF, 512+8": 3, "no signature": 1,
		"bad application tag in block 0, wire offset 0": 1, "stored 0x5678, computed 0x5679": 1,
	} {
		if strings.Count(got, part) != n {
			t.Errorf("%q is not there %d times:\n%s", part, n, got)
		}
	}
}

// TestDrawTimeline draws a connection with packets that are lost on purpose. The picture must have
// the losses and the retransmissions.
func TestDrawTimeline(t *testing.T) {
	program := builtProgram(t)
	_, recording, _ := tracedRun(t, program, buildC(t, "neighbour", "neighbour.c")+" 20", "--fault", "loss=5%,seed=3")
	svg := filepath.Join(t.TempDir(), "timeline.svg")
	if out, err := exec.Command(program, "draw", "-o", svg, recording).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := texts(t, svg)
	for _, part := range []string{"lost on the way", "again ", "requester", "responder", ", QP 0x", " ms"} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in\n%s", part, got)
		}
	}
}

// TestDrawPage opens the page in a browser, by Debian's chromium-driver. It looks at what the
// browser shows, chooses another picture, filters the list, and stores screenshots.
func TestDrawPage(t *testing.T) {
	for _, name := range []string{"chromium", "chromedriver"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("NOT RUN: the page is opened in Debian's chromium with its chromium-driver: %v", err)
		}
	}
	program := builtProgram(t)
	page := filepath.Join(t.TempDir(), "page.html")
	c := exec.CommandContext(t.Context(), program, "draw", "--html", "-o", page, "--", buildExample(t, "pipelining"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := startBrowser(t)
	b.call(t, "POST", "/url", map[string]any{"url": "file://" + page}, nil)

	var shown struct {
		Sections, Visible, Links, Bad int
		Width, Room                   float64
		Text                          string
		Loaded                        []string
	}
	const look = `const s=[...document.querySelectorAll("section")].filter(s=>s.getBoundingClientRect().height>0);
return {Sections:document.querySelectorAll("section").length,Visible:s.length,Links:document.querySelectorAll("nav a:not([hidden])").length,
Bad:s[0].querySelectorAll(".bad").length,Width:s[0].querySelector("svg").getBoundingClientRect().width,Text:s[0].textContent,Room:document.querySelector("main").clientWidth,
Loaded:performance.getEntriesByType("resource").map(e=>e.name)};`
	b.run(t, look, &shown)
	if shown.Sections < 5 || shown.Visible != 1 || shown.Links != shown.Sections || len(shown.Loaded) > 0 {
		t.Errorf("the page shows %+v", shown)
	}
	if shown.Bad == 0 || shown.Width > shown.Room {
		t.Errorf("the page does not open on the bad block, or is wider than the window: %+v", shown)
	}
	b.screenshot(t, "way.png")
	links := shown.Links

	b.run(t, `location.hash="#key-1"`, nil)
	b.await(t, `return document.getElementById("key-1").getBoundingClientRect().height>0`)
	b.run(t, look, &shown)
	if shown.Visible != 1 || shown.Bad != 1 || !strings.Contains(shown.Text, "bad guard in block 5, wire offset 2600") {
		t.Errorf("the key: %+v", shown)
	}
	b.screenshot(t, "key.png")

	width := shown.Width
	b.run(t, `document.getElementById("in").click(); const f=document.getElementById("filter"); f.value="127."; f.dispatchEvent(new Event("input"));`, nil)
	b.run(t, look, &shown)
	if shown.Width <= width || shown.Links == 0 || shown.Links >= links {
		t.Errorf("after zooming and filtering: %+v; before, %g wide with %d links", shown, width, links)
	}
}

// browser is a session of chromedriver, which speaks WebDriver.
type browser struct{ session string }

// startBrowser starts a headless browser, which ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	c := exec.Command("chromedriver", fmt.Sprintf("--port=%d", port))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	b := &browser{session: fmt.Sprintf("http://127.0.0.1:%d", port)}
	for range 1200 {
		if r, err := http.Get(b.session + "/status"); err == nil {
			r.Body.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	var made struct{ SessionID string }
	b.call(t, "POST", "/session", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"goog:chromeOptions": map[string]any{"args": []string{"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,800", "--user-data-dir=" + t.TempDir()}},
	}}}, &made)
	b.session += "/session/" + url.PathEscape(made.SessionID)
	t.Cleanup(func() { b.call(t, "DELETE", "", nil, nil) })
	return b
}

// call sends a command, and decodes the value of the answer.
func (b *browser) call(t *testing.T, method, path string, body, value any) {
	t.Helper()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	q, err := http.NewRequest(method, b.session+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer r.Body.Close()
	answer := struct{ Value any }{value}
	all, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v: %.500s", path, r.Status, err, all)
	}
	if err := json.Unmarshal(all, &answer); err != nil {
		t.Fatalf("%s: %v: %.500s", path, err, all)
	}
}

// run runs a script in the page.
func (b *browser) run(t *testing.T, script string, value any) {
	t.Helper()
	b.call(t, "POST", "/execute/sync", map[string]any{"script": script, "args": []any{}}, value)
}

// await waits until a script returns true.
func (b *browser) await(t *testing.T, script string) {
	t.Helper()
	for range 1200 {
		var ok bool
		if b.run(t, script, &ok); ok {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the page never comes to %s", script)
}

// screenshot stores an image of what the browser shows, which must have more than one colour. The
// file remains after go test -artifacts.
func (b *browser) screenshot(t *testing.T, name string) {
	t.Helper()
	var text string
	b.call(t, "GET", "/screenshot", nil, &text)
	content, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(t.ArtifactDir(), name), content, 0o666)
	picture, err := png.Decode(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	colours := map[[3]uint32]bool{}
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y += 5 {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x += 5 {
			r, g, b, _ := picture.At(x, y).RGBA()
			colours[[3]uint32{r, g, b}] = true
		}
	}
	if len(colours) < 6 {
		t.Errorf("%s has %d colours", name, len(colours))
	}
}
