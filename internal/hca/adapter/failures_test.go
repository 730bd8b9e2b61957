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
		{Opcode: prm.CQERequesterErr, Syndrome: prm.SyndromeLocalProt}, // has no counter of its own
		{Opcode: prm.CQERecvErr, Syndrome: prm.SyndromeFlush}, {Opcode: prm.CQERecvErr, Syndrome: prm.SyndromeLocalLength},
	} {
		d.failures.count(&c)
	}
	want := Failures{Requester: 7, RequesterFlushed: 2, RequesterInvalid: 1, RequesterAccess: 1, RequesterRetries: 1, RequesterRNRs: 1,
		Responder: 2, ResponderFlushed: 1, ResponderLength: 1}
	if got := d.Failures(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
