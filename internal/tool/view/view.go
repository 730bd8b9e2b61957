// Package view serves a page that shows a run as it goes. It takes the lines of a thinned trace
// (internal/hca/trace), keeps the state of the run and the lines of the last minute, and sends both to browsers. The
// browser draws; pictures of keys, requests and states come from package draw.
//
// A stranger sees nothing: the path begins with a random token. Other origins are refused, and the page loads
// nothing from elsewhere. What programs name reaches the page as text only.
package view

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/base/webserver"
	"github.com/softmkey/softmkey/internal/tool/draw"
)

//go:embed page.html page.css page.js
var files embed.FS

// Server serves the page of a run until Close is called. It is the io.Writer of a thinned trace.
type Server struct {
	web     *webserver.Server
	title   string
	token   string // the first part of each path
	host    string // the name of the address that was asked for, if it is one
	streams chan struct{}
	drawing sync.Mutex // held while a picture is drawn: one at a time

	mu      sync.Mutex // guards the following fields
	base    kept       // the state before the first of ticks
	ticks   []tick     // of the last minute
	next    uint64     // number of the next tick
	bytes   int        // of ticks
	changed chan struct{}
}

// tick is what happened in an interval: lines of the trace.
type tick struct {
	number uint64
	at     time.Time
	lines  []byte
}

// The bounds of the server.
const (
	mostTicks   = 24 << 20 // bytes of the last minute's lines
	minute      = time.Minute
	connections = 32
	mostStreams = 8 // pages that are open
	writeTime   = 20 * time.Second
)

// Serve serves the page at a TCP address, HOST:PORT. title is the command line of the program.
func Serve(addr, title string) (*Server, error) {
	random := make([]byte, 16)
	rand.Read(random) // never fails: crypto/rand ends the program instead
	s := &Server{title: title, token: hex.EncodeToString(random), streams: make(chan struct{}, mostStreams), changed: make(chan struct{})}
	if host, _, err := net.SplitHostPort(addr); err == nil {
		s.host = host
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{token}/{$}", s.file("page.html", "text/html; charset=utf-8"))
	mux.HandleFunc("GET /{token}/page.css", s.file("page.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /{token}/page.js", s.file("page.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("GET /{token}/events", s.events)
	mux.HandleFunc("GET /{token}/picture", s.picture)
	var err error
	s.web, err = webserver.Listen(addr, connections, s.guarded(mux))
	return s, err
}

// URL returns the address of the page, with its token.
func (s *Server) URL() string { return "http://" + s.web.Addr().String() + "/" + s.token + "/" }

// Close ends the server. Pages that are open say that it has gone.
func (s *Server) Close() error { return s.web.Close() }

// Write takes lines of a trace. It never waits for a browser.
func (s *Server) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticks = append(s.ticks, tick{s.next, time.Now(), bytes.Clone(lines)})
	s.next++
	s.bytes += len(lines)
	for len(s.ticks) > 1 && (s.bytes > mostTicks || time.Since(s.ticks[0].at) > minute) {
		for line := range bytes.Lines(s.ticks[0].lines) {
			s.base.take(bytes.TrimSuffix(line, []byte("\n")))
		}
		s.bytes -= len(s.ticks[0].lines)
		s.ticks = slices.Delete(s.ticks, 0, 1)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return len(lines), nil
}

// End tells the pages that the program has ended, and how.
func (s *Server) End(how string) {
	line, _ := json.Marshal(map[string]any{"kind": "over", "time": time.Now(), "reason": how}) // always can be
	s.Write(append(line, '\n'))
}

// guarded refuses requests of strangers: without the token, from a page of another origin, or for a name that
// somebody else's DNS gives to this address.
func (s *Server) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		origin := r.Header.Get("Origin")
		switch {
		case !s.ours(r.Host):
			http.Error(w, fmt.Sprintf("the name %q is not that of this page", r.Host), http.StatusMisdirectedRequest)
		case origin != "" && origin != "http://"+r.Host:
			http.Error(w, "another origin may not read this page", http.StatusForbidden)
		case subtle.ConstantTimeCompare([]byte(first), []byte(s.token)) != 1:
			http.Error(w, "the address of the page has a token, which softmkey has printed", http.StatusForbidden)
		default:
			header := w.Header()
			header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
			header.Set("Referrer-Policy", "no-referrer") // the address has the token
			header.Set("X-Content-Type-Options", "nosniff")
			header.Set("Cross-Origin-Resource-Policy", "same-origin")
			header.Set("Cross-Origin-Opener-Policy", "same-origin")
			header.Set("Cache-Control", "no-store")
			h.ServeHTTP(w, r)
		}
	})
}

// ours reports whether a request names this server by an address, as localhost, or by the name that the user gave.
func (s *Server) ours(hostport string) bool {
	host := (&url.URL{Host: hostport}).Hostname()
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || host != "" && host == s.host
}

// file serves a file of the page.
func (s *Server) file(name, kind string) http.HandlerFunc {
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err) // it is embedded
	}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Write(content)
	}
}

// stream is the position of a browser in the ticks.
type stream struct {
	next  uint64
	known bool // the browser has everything before next
}

// take returns what the browser lacks: the state of the run if it is new or was overtaken, and ticks. ok is false
// if it has everything; then changed is closed by the next tick.
func (s *Server) take(at *stream) (base [][]byte, ticks []tick, changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := s.next - uint64(len(s.ticks))
	if !at.known || at.next < oldest || at.next > s.next {
		base, at.next = s.base.all(), oldest
	}
	ticks = slices.Clone(s.ticks[at.next-oldest:])
	at.next, at.known = s.next, true
	return base, ticks, s.changed
}

// events streams the run to a browser, as server-sent events: "base" with the state of the run at the beginning of the
// last minute, then a "tick" for each interval in which something happened, and the time each second. A browser that is
// slower than the run gets a base again; the run waits for nobody.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, fmt.Sprintf("%d pages are open, which is the most", mostStreams), http.StatusServiceUnavailable)
		return
	}
	out := http.NewResponseController(w)
	out.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "text/event-stream")
	var at stream
	if n, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		at = stream{next: n + 1, known: true} // the browser lost the connection, and has what is before
	}
	title, _ := json.Marshal(s.title) // always can be
	pulse := time.NewTicker(time.Second)
	defer pulse.Stop()
	for {
		overtaken := at.known
		base, ticks, changed := s.take(&at)
		out.SetWriteDeadline(time.Now().Add(writeTime))
		if base != nil {
			fmt.Fprintf(w, "event: base\ndata: {\"title\":%s,\"overtaken\":%t,\"lines\":[%s]}\n\n", title, overtaken, bytes.Join(base, []byte(",")))
		}
		for _, t := range ticks {
			lines := bytes.ReplaceAll(bytes.TrimSpace(t.lines), []byte("\n"), []byte(","))
			if _, err := fmt.Fprintf(w, "id: %d\nevent: tick\ndata: {\"at\":%d,\"lines\":[%s]}\n\n", t.number, t.at.UnixMilli(), lines); err != nil {
				return
			}
			out.SetWriteDeadline(time.Now().Add(writeTime))
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case now := <-pulse.C: // the page sees how long something waits
			fmt.Fprintf(w, "event: pulse\ndata: %d\n\n", now.UnixMilli())
		case <-r.Context().Done():
			return
		}
	}
}

// lines returns the lines that are kept and that have one of the texts, in their order.
func (s *Server) lines(texts ...string) []byte {
	s.mu.Lock()
	all := s.base.all()
	ticks := slices.Clone(s.ticks)
	s.mu.Unlock()
	for _, t := range ticks {
		all = append(all, bytes.Split(bytes.TrimSpace(t.lines), []byte("\n"))...)
	}
	return bytes.Join(slices.DeleteFunc(all, func(line []byte) bool {
		return len(line) > mostLine || !slices.ContainsFunc(texts, func(t string) bool { return bytes.Contains(line, []byte(t)) })
	}), []byte("\n"))
}

// picture draws a key (key=NUMBER), the states of a queue pair (qp=NUMBER), or the way of one of its requests
// (qp=NUMBER, request=NUMBER).
func (s *Server) picture(w http.ResponseWriter, r *http.Request) {
	s.drawing.Lock()
	defer s.drawing.Unlock()
	number := func(name string) uint64 {
		n, _ := strconv.ParseUint(r.URL.Query().Get(name), 10, 64)
		return n
	}
	process, key, qp, request := int(number("process")), uint32(number("key")), uint32(number("qp")), number("request")
	trace, err := draw.ReadTrace(bytes.NewReader(s.lines(`"action":"UMR"`, `"kind":"signature"`, fmt.Sprintf(`"object":"qp","number":%d,`, qp))))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	trace = slices.DeleteFunc(trace, func(r draw.Record) bool { return r.Process != process })
	var svg []byte
	switch {
	case r.URL.Query().Has("key"):
		for _, k := range draw.Keys(trace) {
			if k.Number>>8 == key>>8 {
				k.Narrow = true
				svg = k.SVG()
			}
		}
	case r.URL.Query().Has("request"):
		for _, way := range draw.Ways(trace) {
			if way.QP == qp && way.Request == request {
				way.Narrow = true
				svg = way.SVG()
			}
		}
	default:
		for _, states := range draw.AllStates(trace) {
			if states.QP == qp {
				svg = states.SVG()
			}
		}
	}
	if svg == nil {
		http.Error(w, "there is no such picture", http.StatusNotFound)
		return
	}
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	header.Set("Content-Type", "image/svg+xml")
	w.Write(svg)
}
