package perf

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/tool/filecopy"
	"github.com/softmkey/softmkey/internal/tool/rendezvous"
	"github.com/softmkey/softmkey/roce/inproc"
	"github.com/softmkey/softmkey/verbs"
)

// TestHostileClient sends a server what no client does. It must end the
// conversation, and give back what it has.
func TestHostileClient(t *testing.T) {
	ok := Case{Test: Bandwidth, Op: Write, Size: 64, Depth: 1, QPs: 1}
	with := func(f func(*Case)) *request {
		c := ok
		f(&c)
		return &request{Kind: kindCase, Case: &c}
	}
	for name, tc := range map[string]struct {
		lines []any
		want  string
	}{
		"another program":     {[]any{hello{"softmkey copy", 1}}, "this is"},
		"a later version":     {[]any{hello{program, 2}}, "version 2"},
		"no JSON":             {[]any{"x"}, "does not fit"},
		"nothing to do":       {[]any{hello{program, version}, request{}}, "out of turn"},
		"stop at once":        {[]any{hello{program, version}, request{Kind: kindStop}}, "out of turn"},
		"no case":             {[]any{hello{program, version}, request{Kind: kindCase}}, "out of turn"},
		"too large":           {[]any{hello{program, version}, with(func(c *Case) { c.Size = 1<<30 + 1 })}, "must be 1 to"},
		"too large together":  {[]any{hello{program, version}, with(func(c *Case) { c.Size, c.QPs = 1<<30, 1<<10 })}, "at most"},
		"too many":            {[]any{hello{program, version}, with(func(c *Case) { c.QPs = 1 << 30 })}, "queue pairs"},
		"too deep":            {[]any{hello{program, version}, with(func(c *Case) { c.Depth = 1 << 30 })}, "depth"},
		"too much inline":     {[]any{hello{program, version}, with(func(c *Case) { c.Inline = 1 << 30 })}, "inline"},
		"another test":        {[]any{hello{program, version}, with(func(c *Case) { c.Test = "jitter" })}, "test"},
		"another operation":   {[]any{hello{program, version}, with(func(c *Case) { c.Op = "bind" })}, "operation"},
		"a large atomic":      {[]any{hello{program, version}, with(func(c *Case) { c.Op = FetchAdd })}, "atomics have 8"},
		"keys that cannot be": {[]any{hello{program, version}, with(func(c *Case) { c.Terms = filecopy.Terms{Wire: "md5"} })}, "--wire"},
		"no endpoint": {[]any{hello{program, version}, request{Kind: kindCase, Case: &ok}, map[string]string{"endpoint": "x"}},
			"does not fit"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			a, b := inproc.Pair(nil)
			defer b.Close()
			dev, err := verbs.Open(a.LocalAddr().Addr(), &verbs.Options{Conn: a})
			if err != nil {
				t.Fatal(err)
			}
			here, there := net.Pipe()
			served := make(chan error, 1)
			go func() {
				defer there.Close()
				conn := rendezvous.New(there)
				err := Greet(ctx, conn)
				if err == nil {
					err = Serve(ctx, conn, dev, 0)
				}
				served <- err
			}()
			go func() { // whatever it answers
				b := make([]byte, 1024)
				for {
					if _, err := here.Read(b); err != nil {
						return
					}
				}
			}()
			conn := rendezvous.New(here)
			for _, v := range tc.lines {
				_ = conn.Tell(ctx, v) // the server may have had enough
			}
			if err := <-served; err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			here.Close()
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
