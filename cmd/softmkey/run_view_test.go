//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// page is a run with --view.
type page struct {
	url  string
	run  *exec.Cmd
	errs *bufio.Reader
}

// startView runs a program with a page.
func startView(t *testing.T, args ...string) *page {
	t.Helper()
	c := exec.Command(builtProgram(t), append([]string{"run", "--device", ownAddress(9), "--view"}, args...)...)
	c.Env = append(os.Environ(), "ADDR="+ownAddress(9))
	pipe, err := c.StderrPipe()
	fatal.If(t, err)
	fatal.If(t, c.Start())
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	p := &page{run: c, errs: bufio.NewReader(pipe)}
	const before = "softmkey: run: this run as a page: "
	line, err := p.errs.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, before) {
		t.Fatalf("%q %v", line, err)
	}
	p.url = strings.TrimSpace(strings.TrimPrefix(line, before))
	return p
}

// end waits for the end of the program, ends the run as Ctrl-C does, and returns its status.
func (p *page) end(t *testing.T) int {
	t.Helper()
	for {
		line, err := p.errs.ReadString('\n')
		fatal.If(t, err)
		if strings.Contains(line, "the page stays until Ctrl-C") {
			break
		}
	}
	p.run.Process.Signal(syscall.SIGTERM)
	io.Copy(io.Discard, p.errs)
	p.run.Wait()
	return p.run.ProcessState.ExitCode()
}

// shows waits until the page shows a text.
func (b *browser) shows(t *testing.T, text string) {
	t.Helper()
	quoted, _ := json.Marshal(text)
	b.await(t, "return document.body.innerText.includes("+string(quoted)+")")
}

// looks stores the page dark and light, wide and as a phone shows it. It must not be wider than the window.
func (b *browser) looks(t *testing.T, name string) {
	t.Helper()
	emulate := func(command string, params map[string]any) {
		b.call(t, "POST", "/goog/cdp/execute", map[string]any{"cmd": "Emulation." + command, "params": params}, nil)
	}
	for _, scheme := range []string{"light", "dark"} {
		emulate("setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}})
		for _, width := range []int{1400, 420} {
			emulate("setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false})
			b.await(t, "return [...document.images].every(i => i.complete)")
			var wide float64
			if b.run(t, "return document.documentElement.scrollWidth", &wide); wide > float64(width) {
				t.Errorf("%s is %v wide in a window of %d", name, wide, width)
			}
			b.screenshot(t, fmt.Sprintf("%s-%s-%d.png", name, scheme, width))
		}
	}
	emulate("setDeviceMetricsOverride", map[string]any{"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": false})
}

// click clicks the first button whose text begins so.
func (b *browser) click(t *testing.T, text string) {
	t.Helper()
	quoted, _ := json.Marshal(text)
	b.await(t, "const x=[...document.querySelectorAll('button')].find(b=>!b.hidden&&b.textContent.startsWith("+string(quoted)+"));if(x)x.click();return Boolean(x)")
}

// TestView opens the pages of runs in Debian's chromium: a key with a bad block, lost packets, a queue pair that never
// gets to RTS and a program whose name has markup.
func TestView(t *testing.T) {
	for _, name := range []string{"chromium", "chromedriver"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("NOT RUN: the page is opened in Debian's chromium with its chromium-driver: %v", err)
		}
	}
	need(t, "ib_write_bw")
	b := startBrowser(t)
	visit := func(p *page) { b.call(t, "POST", "/url", map[string]any{"url": p.url}, nil) }

	t.Run("key", func(t *testing.T) { // the browser comes when the program has ended
		p := startView(t, "--", buildExample(t, "pipelining"))
		visit(p)
		b.shows(t, "the program has ended with status 0")
		b.shows(t, "bad guard: block 5 at offset 2600")
		b.click(t, "key 0x")
		b.await(t, "const i=document.querySelector('#detail img');return Boolean(i)&&i.complete&&i.naturalWidth>0")
		b.looks(t, "key")
		b.click(t, "4 RDMA_READ")
		b.shows(t, "Its way")
		b.await(t, "const i=document.querySelector('#detail img');return Boolean(i)&&i.complete&&i.naturalWidth>0")
		b.looks(t, "request")
		b.click(t, "QP 0x")
		b.shows(t, "INIT to RTR, by the program")
		b.looks(t, "states")
		b.run(t, "show(0)", nil)
		b.await(t, "return document.getElementById('moment').textContent.endsWith('before the latest')||frames.length===1")
		var loaded []string
		b.run(t, "return performance.getEntriesByType('resource').map(e=>e.name).filter(n=>!n.startsWith(location.href))", &loaded)
		if len(loaded) > 0 {
			t.Errorf("the page loads %v", loaded)
		}
		if status := p.end(t); status != 0 {
			t.Errorf("status %d", status)
		}
		b.shows(t, "softmkey has gone")
	})
	t.Run("loss", func(t *testing.T) {
		p := startView(t, "--fault", "loss=1%,seed=3", "--", "sh", "-c", serve("ib_write_bw -F -x 3 -s 4096 -n 20000 -p 19891", "ib_write_bw -F -x 3 -s 4096 -n 20000 -p 19891 $ADDR"))
		visit(p)
		b.shows(t, "sent again, the last of them")
		b.await(t, "return [...now.qps.values()].some(q=>q.counts.resent>0&&q.counts.ended>1000)")
		b.looks(t, "loss")
		b.shows(t, "the program has ended with status 0")
		if status := p.end(t); status != 0 {
			t.Errorf("status %d", status)
		}
	})
	t.Run("never RTS", func(t *testing.T) {
		p := startView(t, "--", buildC(t, "manyqps", "manyqps.c"), "1000", "30")
		visit(p)
		b.await(t, "return now.qps.size===1000")
		b.shows(t, "It waits for RTR")
		b.shows(t, "more queue pairs: the filter finds them")
		b.looks(t, "1000")
		b.run(t, "const f=document.getElementById('filter');f.value='reset';f.dispatchEvent(new Event('input'))", nil)
		b.shows(t, "It waits for INIT")
		b.call(t, "POST", "/url", map[string]any{"url": "about:blank"}, nil)
		visit(p) // a browser that returns
		b.await(t, "return now.qps.size===1000")
		b.shows(t, "It waits for RTR")
	})
	t.Run("markup", func(t *testing.T) {
		name := filepath.Join(t.TempDir(), `<img src=x onerror=document.title='hit'>`)
		writeFile(t, name, []byte("#!/bin/sh\nexit 3\n"), 0o777)
		p := startView(t, "--", name)
		visit(p)
		b.shows(t, "<img src=x onerror=document.title='hit'>")
		b.shows(t, "the program has ended with status 3")
		var title string
		if b.run(t, "return document.title", &title); title == "hit" {
			t.Error("the name of the program is markup")
		}
		if status := p.end(t); status != 3 {
			t.Errorf("status %d", status)
		}
	})
}

// browser is a session of chromedriver, which speaks WebDriver.
type browser struct{ session string }

// startBrowser starts a headless browser, which ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	c := exec.Command("chromedriver", fmt.Sprintf("--port=%d", port))
	fatal.If(t, c.Start())
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
	fatal.If(t, err)
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
	fatal.If(t, err)
	writeFile(t, filepath.Join(t.ArtifactDir(), name), content, 0o666)
	picture, err := png.Decode(bytes.NewReader(content))
	fatal.If(t, err)
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
