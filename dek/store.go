package dek

import (
	"maps"
	"slices"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
)

// ImportMode is the form in which a device imports keys.
type ImportMode uint8

// The import modes.
const (
	Plaintext ImportMode = iota // keys are imported in plaintext; there are no logins
	Wrapped                     // keys are imported wrapped, which needs a login
)

// String returns "plaintext" or "wrapped".
func (m ImportMode) String() string {
	if m == Plaintext {
		return "plaintext"
	}
	return "wrapped"
}

const (
	maxID          = 1<<24 - 1 // the largest number of a KEK or credential
	credentialSize = 40
)

// Store is the key store of one device. The methods of a Store are for the
// crypto officer; each user has a [Context]. A Store is safe for concurrent
// use.
type Store struct {
	mode ImportMode

	mu sync.Mutex
	// mu guards the following fields, and those of every Context and Login.
	keks        map[uint32]*secret
	credentials map[uint32]*secret
	equalHalves bool // accept keys with two equal halves, as adapters do
}

func init() {
	keydoor.AcceptEqualHalves = func(store any) {
		s := store.(*Store)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.equalHalves = true
	}
	keydoor.EqualHalves = func(key any) bool { return key.(*DEK).equalHalves }
}

// secret is a KEK or credential. A login points to its secrets, and a deleted one has
// length 0.
type secret struct {
	memory slot
	length int
}

func (s *secret) deleted() bool { return s.length == 0 }

// free overwrites the secret. Logins with it become invalid.
func (s *secret) free() {
	s.length = 0
	s.memory.free()
}

func (s *secret) bytes() []byte { return s.memory.bytes()[:s.length] }

// NewStore returns the key store of a device in the given import mode.
func NewStore(mode ImportMode) *Store {
	return &Store{mode: mode, keks: map[uint32]*secret{}, credentials: map[uint32]*secret{}}
}

// Mode returns the import mode.
func (s *Store) Mode() ImportMode { return s.mode }

// AddKEK puts an import KEK of 16 or 32 bytes on the device. It is copied into locked
// memory; the caller overwrites its own.
//
// EOPNOTSUPP: the device is in mode Plaintext. EINVAL: an id of more than 24 bits or a wrong
// length. EEXIST: the device has a KEK with that id. ENOMEM: the system gives no locked
// memory.
func (s *Store) AddKEK(id uint32, kek []byte) error {
	return s.putKEK("kek add", id, kek, false)
}

// ReplaceKEK replaces the import KEK with that id, as DeleteKEK and AddKEK in
// one step. After an error the old KEK remains. ENOENT: there is none with that
// id. The other errors are those of [Store.AddKEK].
func (s *Store) ReplaceKEK(id uint32, kek []byte) error {
	return s.putKEK("kek replace", id, kek, true)
}

func (s *Store) putKEK(op string, id uint32, kek []byte, replace bool) error {
	if err := checkKEK(op, kek); err != nil {
		return err
	}
	return s.put(op, s.keks, id, kek, replace)
}

// AddCredential puts a credential of 40 bytes on the device. The
// bytes are copied. The errors are those of [Store.AddKEK].
func (s *Store) AddCredential(id uint32, credential []byte) error {
	return s.putCredential("credential add", id, credential, false)
}

// ReplaceCredential replaces the credential with that id. The errors are those
// of [Store.ReplaceKEK].
func (s *Store) ReplaceCredential(id uint32, credential []byte) error {
	return s.putCredential("credential replace", id, credential, true)
}

func (s *Store) putCredential(op string, id uint32, credential []byte, replace bool) error {
	if len(credential) != credentialSize {
		return failure.New(op, syscall.EINVAL, "credential of %d bytes: must be %d", len(credential), credentialSize)
	}
	return s.put(op, s.credentials, id, credential, replace)
}

func (s *Store) put(op string, to map[uint32]*secret, id uint32, value []byte, replace bool) error {
	if s.mode != Wrapped {
		return failure.New(op, syscall.EOPNOTSUPP, "the device's import mode is plaintext")
	}
	if id > maxID {
		return failure.New(op, syscall.EINVAL, "id %#x: ids have 24 bits", id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer oneThread()()
	old := to[id]
	switch {
	case old != nil && !replace:
		return failure.New(op, syscall.EEXIST, "id %#x is taken", id)
	case old == nil && replace:
		return notOnDevice(op, id)
	}
	m, err := allocate()
	if err != nil {
		return noLockedMemory(op, err)
	}
	if old != nil {
		old.free()
	}
	copy(m.bytes(), value)
	to[id] = &secret{memory: m, length: len(value)}
	return nil
}

// DeleteKEK deletes an import KEK and overwrites it. Logins with it become
// invalid; DEKs made with it remain usable. ENOENT: there is none with that id.
func (s *Store) DeleteKEK(id uint32) error { return s.delete("kek delete", s.keks, id) }

// DeleteCredential deletes a credential and overwrites it. Logins with it
// become invalid; DEKs made with them remain usable. ENOENT: there is none with
// that id.
func (s *Store) DeleteCredential(id uint32) error {
	return s.delete("credential delete", s.credentials, id)
}

// Secrets returns the ids of the KEKs and of the credentials on the device, each in
// ascending order.
func (s *Store) Secrets() (keks, credentials []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.keks)), slices.Sorted(maps.Keys(s.credentials))
}

func (s *Store) delete(op string, from map[uint32]*secret, id uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := from[id]
	if x == nil {
		return notOnDevice(op, id)
	}
	delete(from, id)
	x.free()
	return nil
}

func notOnDevice(op string, id uint32) error {
	return failure.New(op, syscall.ENOENT, "id %#x is not on the device", id)
}
