package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/softmkey/softmkey/internal/base/lineout"
	"github.com/softmkey/softmkey/internal/tool/filecopy"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/mkey"
)

// start starts the progress bar.
func (r *copyRun) start(title string, total int64) {
	if !r.quiet && !r.json {
		r.bar = newProgress(title, total)
	}
}

// progress moves the progress bar to done, a number of bytes.
func (r *copyRun) progress(done int64) { r.bar.set(done) }

// sideBad is a bad block as JSON, with the side whose key found it.
type sideBad struct {
	Side string `json:"side"`
	*filecopy.Bad
}

// bad returns a function that reports a bad block of a side on standard error.
func (r *copyRun) bad(side string) func(*mkey.BadBlock) {
	return func(b *mkey.BadBlock) {
		r.badBlocks.Add(1)
		defer r.bar.hide()()
		if r.json {
			encodeJSON(r.c.ErrOrStderr(), sideBad{side, filecopy.NewBad(b)})
			return
		}
		message(r.c.ErrOrStderr(), "%v", &filecopy.BadError{Side: side, Block: b})
	}
}

// end reports the outcome, and removes an output that is not complete.
func (r *copyRun) end(err error, src, dst string, report func() filecopy.Report) error {
	r.bar.end()
	if r.out != nil {
		r.out.Abandon()
		err = r.out.Explain(err)
		r.out = nil
	}
	var bad *filecopy.BadError
	switch {
	case err != nil && !errors.As(err, &bad):
		return err
	case err != nil && !r.keepGoing:
		r.bad(bad.Side)(bad.Block)
	}
	if err != nil && r.in != nil && !r.json && bad.Side == "sender" && bad.Block.Domain == mkey.MemoryDomain && r.keys.crypto.value == "" {
		suggestFormat(r.c.ErrOrStderr(), r.in, r.in.Name(), r.keys.mem.domain(), err)
	}
	if err != nil && !r.keepGoing {
		if r.json {
			reportFailure(r.c, err, exitBad)
		}
		return err
	}
	to := r.c.OutOrStdout()
	if r.toStdout {
		to = r.c.ErrOrStderr()
	}
	o := report()
	if r.json {
		encodeOutcome(to, struct {
			Command string `json:"command"`
			filecopy.Report
		}{"copy", o}, true)
	} else {
		printCopy(to, src, dst, &o)
	}
	if o.FlipMissed {
		message(r.c.ErrOrStderr(), "warning: --flip %d: the receiver did not find the byte: the check mask, an escape or the end of the last block excludes it", r.flip.value)
	}
	return err
}

// printCopy prints a report for people.
func printCopy(to io.Writer, src, dst string, r *filecopy.Report) {
	var route []string
	if src != "" {
		route = append(route, inputName(src))
	}
	if dst == "-" {
		dst = "standard output"
	}
	if dst != "" {
		route = append(route, lineout.Printable(dst))
	}
	ops := map[string]string{keyplan.Write: "RDMA WRITE", keyplan.Send: "SEND", keyplan.Read: "RDMA READ"}
	fmt.Fprintf(to, "%s: %s, MTU %d, %s of up to %d bytes\n\n", strings.Join(route, " -> "), ops[r.Op], r.MTU, count(r.Chunks, "chunk"), r.Chunk)

	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  \tsignature\tencrypted\tbytes\tbegins with\tfirst field")
	for _, d := range []struct {
		name string
		filecopy.Contents
	}{{"memory", r.Memory}, {"wire", r.Wire}, {"peer memory", r.Peer}} {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%d\t%s\t%s\n", d.name, d.Signature, d.Encrypted, d.Bytes, d.Begins, d.Field)
	}
	w.Flush()

	fmt.Fprintf(to, "\n  %d bytes of data in %v, %s\n\n", r.Bytes, time.Duration(r.Seconds*1e9).Round(10*time.Microsecond), rate(r.GBps))
	w = tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, s := range []struct {
		name string
		*filecopy.Side
	}{{"sender", r.Sender}, {"receiver", r.Receiver}} {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", s.name, cmp.Or(s.Device, "elsewhere"), s.Key, verdict(s.Side), traffic(s.Side))
	}
	w.Flush()
	for _, s := range []*filecopy.Side{r.Sender, r.Receiver} {
		if s.Completions != nil {
			fmt.Fprintf(to, "  completions on %s: %s\n", s.Device, completions(s.Completions))
		}
	}
}

// rate returns a rate in GB/s in words. The rate of a small file is so low that it is in MB/s.
func rate(gbps float64) string {
	if gbps < 0.1 {
		return fmt.Sprintf("%.2f MB/s", gbps*1000)
	}
	return fmt.Sprintf("%.2f GB/s", gbps)
}

// verdict returns the findings of a side's key in words.
func verdict(s *filecopy.Side) string {
	switch {
	case s.BadChunks > 0:
		return "bad signatures in " + count(s.BadChunks, "chunk")
	case s.Checked:
		if s.Tail > 0 {
			return fmt.Sprintf("every signature good, none on the last %d bytes", s.Tail)
		}
		return "every signature good"
	}
	return "nothing to check"
}

// count returns a number of things in words.
func count(n uint64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// traffic returns the packets of a side's device in words.
func traffic(s *filecopy.Side) string {
	if s.Packets == nil {
		return ""
	}
	return fmt.Sprintf("%d packets sent, %d again, %d received", s.Packets.SentPackets, s.Packets.Retransmitted, s.Packets.RecvPackets)
}

func completions(counts map[string]uint64) string {
	var list []string
	for name, n := range counts {
		list = append(list, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
