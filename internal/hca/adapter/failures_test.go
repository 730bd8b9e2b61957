package adapter

import (
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestFailures counts completions of each side and syndrome.
func TestFailures(t *testing.T) {
	d := &Device{}
	for _, c := range []prm.CQE{
		{Opcode: prm.CQERequester}, {Opcode: prm.CQERecvWriteImm}, // no errors
		{Opcode: prm.CQERequesterErr, Syndrome: prm.SyndromeFlush}, {Opcode: prm.CQERequesterErr, Syndrome: prm.SyndromeFlush},
		{Opcode: prm.CQERequesterErr, Syndrome: prm.SyndromeRemoteInvalid}, {Opcode: prm.CQERequesterErr, Syndrome: prm.SyndromeRemoteAccess},
		{Opcode: prm.CQERequesterErr, Syndrome: prm.SyndromeRetryExceeded}, {Opcode: prm.CQERequesterErr, Syndrome: prm.SyndromeRNRExceeded},
		{Opcode: prm.CQERequesterErr, Syndrome: prm.SyndromeLocalProt},
		{Opcode: prm.CQERecvErr, Syndrome: prm.SyndromeFlush}, {Opcode: prm.CQERecvErr, Syndrome: prm.SyndromeLocalLength},
	} {
		d.failures.count(&c)
	}
	f := d.Failures()
	if a, b := f.All(Requester), f.All(Responder); a != 7 || b != 2 {
		t.Errorf("%d of requesters and %d of responders, want 7 and 2", a, b)
	}
	if a, b, c := f.Of(Requester, prm.SyndromeFlush), f.Of(Requester, prm.SyndromeRNRExceeded), f.Of(Responder, prm.SyndromeLocalLength); a != 2 || b != 1 || c != 1 {
		t.Errorf("%d flushed, %d without receive requests and %d too long, want 2, 1 and 1", a, b, c)
	}
}
