package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// Op is the operation of a request.
type Op string

// The requests. Secret is the KEK or the credential; ID names the KEK, the credential or the DEK.
const (
	AddKEK            Op = "add-kek"            // put a KEK of 16 or 32 bytes on the devices
	ReplaceKEK        Op = "replace-kek"        // logins with the old one become invalid
	DeleteKEK         Op = "delete-kek"         // logins with it become invalid
	AddCredential     Op = "add-credential"     // put a credential of 40 bytes on the devices
	ReplaceCredential Op = "replace-credential" // logins with the old one become invalid
	DeleteCredential  Op = "delete-credential"  // logins with it become invalid
	FailDEK           Op = "fail-dek"           // put a DEK into state error
	List              Op = "list"               // the ids of KEKs, credentials and DEKs

	// Faults of the adapter. Device is empty for all devices of the run.
	PortDown    Op = "port-down"    // the port loses its link
	PortUp      Op = "port-up"      // and has it again
	DeviceFatal Op = "device-fatal" // the device fails, with all of its objects
	GIDChange   Op = "gid-change"   // the GIDs of the device's address move to other indexes, or back
	QPError     Op = "qp-error"     // a queue pair fails; ID is its number
	Loss        Op = "loss"         // a share of the packets that the device sends is lost
	Clear       Op = "clear"        // the port is up, nothing is lost, and the GIDs are at their first indexes
)

// Request is one request of the officer or a tester.
type Request struct {
	Op     Op      `json:"op"`
	Device string  `json:"device,omitempty"` // of FailDEK and faults
	ID     uint32  `json:"id"`
	Secret []byte  `json:"-"`
	Share  float64 `json:"share,omitempty"` // of Loss, from 0 to 1
}

// header is a request as it is sent. The secret follows its line, as bytes: the JSON package
// would leave copies of it in memory.
type header struct {
	Request
	Length int `json:"secret"` // of the secret, in bytes
}

// DEK is a data encryption key that a program has made. Its number is the one in traces.
type DEK struct {
	Device  string `json:"device"`
	Number  uint32 `json:"number"`
	Bits    int    `json:"bits"`
	Process int    `json:"process"`
}

// Reply is the answer to a request. Error is empty if the request was executed; the other
// fields answer List. A reply with Begun says that the execution begins; another one follows.
type Reply struct {
	Begun       bool     `json:"begun,omitempty"`
	Error       string   `json:"error,omitempty"`
	Mode        string   `json:"mode,omitempty"`
	KEKs        []uint32 `json:"keks,omitempty"`
	Credentials []uint32 `json:"credentials,omitempty"`
	DEKs        []DEK    `json:"deks,omitempty"`
}

const (
	maxHeader = 4 << 10  // bytes
	maxSecret = 64       // bytes
	maxReply  = 64 << 20 // bytes, enough for 2^18 DEKs
)

// patience is how long a request waits for the run to begin it, and then for the run to end it.
const patience = 30 * time.Second

// Do sends a request to the run that listens on the socket at path, and returns its answer. A
// request that was refused is an error. So is a socket of another user, unless root asks: whoever may write
// to the folder can listen at the path, and the request carries secrets. A run that does not begin the request
// within 30 seconds, because it is stopped for example, does not begin it later either; the error says so.
func Do(path string, r *Request) (*Reply, error) { return do(path, r, patience) }

func do(path string, r *Request, patience time.Duration) (*Reply, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return nil, &NoRunError{path}
	case err != nil:
		return nil, err
	}
	defer c.Close()
	if err := mayAnswer(c, path); err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(patience))
	answers := bufio.NewReader(io.LimitReader(c, maxReply))
	var answer Reply
	if err = send(c, header{*r, len(r.Secret)}, r.Secret); err == nil {
		err = decode(answers, &answer)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// This end withdraws the request. The run looks for that after it has announced the beginning: if no
		// announcement is here now, the run does not execute the request. A run that has received no request, or a part
		// of one, answers with a refusal instead of an announcement.
		c.CloseWrite()
		c.SetReadDeadline(time.Now().Add(time.Second))
		if err = decode(answers, &answer); err == nil && !answer.Begun {
			err = errors.New(answer.Error)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the run has not begun the request, and does not execute it: %w", err)
	}
	if answer.Begun {
		answer = Reply{}
		c.SetReadDeadline(time.Now().Add(patience))
		if err := decode(answers, &answer); err != nil {
			return nil, fmt.Errorf("the run has begun the request, and has not answered: %w", err)
		}
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return &answer, nil
}

// NoRunError is the error of a request to a path where no run listens.
type NoRunError struct{ Path string }

func (e *NoRunError) Error() string { return "no run listens on " + e.Path }

// receive reads a request. It reads byte by byte, so that no buffer keeps a part of the secret.
func receive(c io.Reader) (r Request, err error) {
	var h header
	if err := decode(bufio.NewReaderSize(oneByte{io.LimitReader(c, maxHeader)}, 16), &h); err != nil {
		return r, fmt.Errorf("the request: %w", err)
	}
	if h.Length < 0 || h.Length > maxSecret {
		return r, fmt.Errorf("the request: a secret of %d bytes: at most %d", h.Length, maxSecret)
	}
	r = h.Request
	r.Secret = make([]byte, h.Length)
	_, err = io.ReadFull(c, r.Secret)
	return r, err
}

// oneByte reads one byte at a time.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), 1)]) }

// send writes a message of one line, and bytes that follow it.
func send(c io.Writer, message any, follow []byte) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	b := slices.Concat(line, []byte{'\n'}, follow)
	defer clear(b)
	_, err = c.Write(b)
	return err
}

// decode reads a message of one line.
func decode(c *bufio.Reader, message any) error {
	line, err := c.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("it has no end within %d bytes", len(line))
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(line, message)
}
