package view

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

func serve(t *testing.T) *Server {
	t.Helper()
	s, err := Serve("127.0.0.1:0", "./a <b>program</b> \"x\"\n")
	fatal.If(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// ask asks for a path with a Host and headers, and returns the status, the headers and the beginning of the body.
func ask(t *testing.T, s *Server, path, host string, headers ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequest("GET", "http://"+s.web.Addr().String()+path, nil)
	fatal.If(t, err)
	if host != "" {
		r.Host = host
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	fatal.If(t, err)
	defer a.Body.Close()
	if strings.HasSuffix(path, "/events") && a.StatusCode == http.StatusOK {
		return a.StatusCode, a.Header, ""
	}
	b, _ := io.ReadAll(a.Body)
	return a.StatusCode, a.Header, string(b)
}

// TestStrangers asks for every path as strangers do: without the token, with a wrong one, from a page of another
// origin, and by a name that another's DNS gives to the address. They see nothing.
func TestStrangers(t *testing.T) {
	s := serve(t)
	s.Write([]byte(`{"kind":"object","object":"qp","number":7,"action":"create","fields":{"type":"secret"}}` + "\n"))
	port := strings.TrimPrefix(s.web.Addr().String(), "127.0.0.1")
	ours := "/" + s.token + "/"
	for _, path := range []string{"", "page.css", "page.js", "events", "picture?key=1", "nothing"} {
		for _, test := range []struct {
			path, host, origin string
			want               int
		}{
			{ours, "", "", 200},
			{ours, "localhost" + port, "http://localhost" + port, 200},
			{ours, "[::1]" + port, "", 200},
			{"/", "", "", 403},
			{"/" + strings.Repeat("0", 32) + "/", "", "", 403},
			{"/" + s.token[:31] + "/", "", "", 403},
			{ours, "", "http://attacker.example", 403},
			{ours, "", "null", 403},
			{ours, "", "https://" + s.web.Addr().String(), 403},
			{ours, "attacker.example" + port, "http://attacker.example" + port, 421},
			{ours, "127.0.0.1.attacker.example", "", 421},
		} {
			want := test.want
			if want == 200 && (path == "nothing" || path == "picture?key=1") {
				want = 404
			}
			headers := []string{}
			if test.origin != "" {
				headers = []string{"Origin", test.origin}
			}
			code, _, body := ask(t, s, test.path+path, test.host, headers...)
			if code != want || code != 200 && strings.Contains(body, "secret") {
				t.Errorf("%q of host %q, origin %q: %d %q, want %d", test.path+path, test.host, test.origin, code, body, want)
			}
		}
	}
	_, header, _ := ask(t, s, ours, "")
	if csp := header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; script-src 'self';") || strings.Contains(csp, "unsafe") || header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("headers: %v", header)
	}
	if r, err := http.Post(s.URL(), "text/plain", strings.NewReader("x")); err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v %v", r, err)
	}
	if _, err := Serve(s.web.Addr().String(), ""); err == nil {
		t.Error("a second page at the address")
	}
}

// browser reads the events of a page.
type browser struct {
	t    *testing.T
	body io.ReadCloser
	in   *bufio.Reader
}

func open(t *testing.T, s *Server, headers ...string) *browser {
	t.Helper()
	r, _ := http.NewRequest("GET", s.URL()+"events", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil || a.StatusCode != 200 {
		t.Fatal(a, err)
	}
	t.Cleanup(func() { a.Body.Close() })
	return &browser{t, a.Body, bufio.NewReader(a.Body)}
}

// next returns the next event, its number, and its lines. Everything must be JSON in one line.
func (b *browser) next() (event, id string, data map[string]any) {
	b.t.Helper()
	for {
		line, err := b.in.ReadString('\n')
		fatal.If(b.t, err)
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			if event == "pulse" {
				continue
			}
			if err := json.Unmarshal([]byte(value), &data); err != nil {
				b.t.Fatalf("%v in %.200q", err, value)
			}
		case "":
			if event != "" && event != "pulse" {
				return event, id, data
			}
		}
	}
}

func line(kind, object string, number int, action, fields string) string {
	return fmt.Sprintf(`{"time":"2026-01-02T03:04:05.123456Z","process":1,"kind":%q,"object":%q,"number":%d,"action":%q,"fields":{%s}}`+"\n", kind, object, number, action, fields)
}

// TestEvents: a browser gets the state of a run, then what happens; one that returns gets what it missed, and one that
// was overtaken, or that comes late, a state. The end of the program is an event.
func TestEvents(t *testing.T) {
	s := serve(t)
	s.Write([]byte(line("object", "qp", 7, "create", `"type":"RC"`) + line("state", "qp", 7, "INIT", `"from":"RESET"`)))
	b := open(t, s)
	event, _, data := b.next()
	if event != "base" || data["title"] != "./a <b>program</b> \"x\"\n" || data["overtaken"] != false {
		t.Errorf("%s %v", event, data)
	}
	event, id, data := b.next()
	if lines := data["lines"].([]any); event != "tick" || len(lines) != 2 || lines[1].(map[string]any)["action"] != "INIT" {
		t.Errorf("%s %v", event, data)
	}
	s.Write([]byte(line("state", "qp", 7, "RTR", `"from":"INIT"`)))
	if event, _, data = b.next(); event != "tick" || len(data["lines"].([]any)) != 1 {
		t.Errorf("%s %v", event, data)
	}
	if event, _, data = open(t, s, "Last-Event-ID", id).next(); event != "tick" || data["lines"].([]any)[0].(map[string]any)["action"] != "RTR" {
		t.Errorf("after a reconnection: %s %v", event, data)
	}
	s.End("ended <b>with</b> status 3")
	if event, _, data = b.next(); event != "tick" || data["lines"].([]any)[0].(map[string]any)["reason"] != "ended <b>with</b> status 3" {
		t.Errorf("%s %v", event, data)
	}

	// Lines that leave the last minute remain as state.
	filler := strings.Repeat(line("completion", "qp", 7, "success", `"request":1,"opcode":"SEND","bytes":1`), 1000)
	for i := 0; i < mostTicks+mostTicks/8; i += len(filler) {
		s.Write([]byte(filler))
	}
	for _, headers := range [][]string{nil, {"Last-Event-ID", id}} {
		event, _, data = open(t, s, headers...).next()
		actions := []any{}
		for _, l := range data["lines"].([]any) {
			actions = append(actions, l.(map[string]any)["action"])
		}
		if text := fmt.Sprint(actions...); event != "base" || !strings.HasPrefix(text, "createINITRTR") || strings.Count(text, "success") > keptStuff || data["overtaken"] != (headers != nil) {
			t.Errorf("late: %s %v", event, actions)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes > mostTicks || s.base.bytes > mostKept {
		t.Errorf("%d bytes of ticks, %d of state", s.bytes, s.base.bytes)
	}
}

// TestUnread: browsers that do not read do not stop the run, and there are at most mostStreams. A new one finds a
// place when they have gone.
func TestUnread(t *testing.T) {
	s := serve(t)
	var conns []net.Conn
	for range mostStreams {
		c, err := net.Dial("tcp", s.web.Addr().String())
		fatal.If(t, err)
		defer c.Close()
		fmt.Fprintf(c, "GET /%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n", s.token)
		bufio.NewReader(c).ReadString('\n') // the status: the stream is open
		conns = append(conns, c)
	}
	if code, _, body := ask(t, s, "/"+s.token+"/events", ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "pages are open") {
		t.Errorf("one page too many: %d %q", code, body)
	}
	if code, _, _ := ask(t, s, "/"+s.token+"/", ""); code != 200 {
		t.Errorf("the page beside them: %d", code)
	}
	filler := []byte(strings.Repeat(line("completion", "qp", 7, "success", `"request":1,"opcode":"SEND","bytes":1`), 4000))
	for range 100 { // more than the sockets hold
		s.Write(filler)
	}
	for _, c := range conns {
		c.Close()
	}
	for {
		code, _, _ := ask(t, s, "/"+s.token+"/events", "")
		if code == 200 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestKept: what is kept of a run is bounded, whatever a program makes.
func TestKept(t *testing.T) {
	var k kept
	take := func(text string) { k.take([]byte(strings.TrimSuffix(text, "\n"))) }
	for i := range 2 * mostDead {
		take(line("object", "qp", i, "create", ""))
		take(line("object", "mr", i, "create", ""))
		take(line("object", "qp", i, "destroy", ""))
		take(line("object", "mr", i, "destroy", ""))
	}
	if len(k.objects) != mostDead || len(k.dead) != mostDead {
		t.Errorf("%d objects, %d of them destroyed", len(k.objects), len(k.dead))
	}
	for i := range 20 { // one number, again and again
		take(line("object", "qp", 2*mostDead-1, "create", fmt.Sprintf(`"round":%d`, i)))
		take(line("object", "qp", 2*mostDead-1, "destroy", ""))
	}
	if len(k.objects) != mostDead || len(k.dead) != mostDead {
		t.Errorf("%d objects, %d of them destroyed", len(k.objects), len(k.dead))
	}
	padding := `"x":"` + strings.Repeat("x", 100_000) + `"`
	for i := range 1000 {
		take(line("request", "qp", 100_000+i, "UMR", fmt.Sprintf(`"mkey":%d,`, (i+1)<<8)+padding))
	}
	if k.bytes > mostKept+mostLine || k.refused == 0 {
		t.Errorf("%d bytes, %d lines refused", k.bytes, k.refused)
	}
	take("no JSON")
	for _, l := range k.all() {
		if !json.Valid(l) {
			t.Fatalf("%.200s", l)
		}
	}
	sum := 0
	for id := range k.objects {
		k.drop(id)
		sum++
	}
	if k.bytes != 0 {
		t.Errorf("%d bytes of nothing", k.bytes)
	}
}
