// Package nvme has the structures of NVMe over fabrics that a target needs: capsules, properties,
// the data of Identify, log pages, and the private data of NVMe over RDMA. It reads and writes bytes
// only. All numbers are little-endian.
//
// Sources, with the names of their fields: NVM Express Base Specification 1.4 and 2.0 (Base), NVM
// Command Set Specification 1.0 (NVM), NVMe over Fabrics 1.1 (Fabrics), NVMe RDMA Transport
// Specification 1.0 (RDMA).
package nvme

import (
	"bytes"
	"encoding/binary"
)

var le = binary.LittleEndian

// Sizes in bytes.
const (
	CommandSize     = 64 // a submission queue entry
	CompletionSize  = 16 // a completion queue entry
	IdentifySize    = 4096
	ConnectDataSize = 1024
	RangeSize       = 16 // an entry of Dataset Management
	NQNSize         = 223
	SerialSize      = 20
)

// DiscoveryNQN is the name of every discovery subsystem (Fabrics 1.5.1).
const DiscoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"

// Opcode is the opcode of a command. Admin and I/O commands share the numbers.
type Opcode uint8

// Opcodes of admin commands (Base 5, figure "Opcodes for Admin Commands").
const (
	GetLogPage   Opcode = 0x02
	Identify     Opcode = 0x06
	Abort        Opcode = 0x08
	SetFeatures  Opcode = 0x09
	GetFeatures  Opcode = 0x0a
	AsyncEvent   Opcode = 0x0c
	KeepAlive    Opcode = 0x18
	FabricsClass Opcode = 0x7f // both queues
)

// Opcodes of I/O commands (NVM 3).
const (
	Flush             Opcode = 0x00
	Write             Opcode = 0x01
	Read              Opcode = 0x02
	Compare           Opcode = 0x05
	WriteZeroes       Opcode = 0x08
	DatasetManagement Opcode = 0x09
	Verify            Opcode = 0x0c
)

// Types of fabrics commands (Fabrics 3).
const (
	PropertySet = 0x00
	Connect     = 0x01
	PropertyGet = 0x04
	Disconnect  = 0x08
)

// Properties (Fabrics 3.5).
const (
	CAP  = 0x00 // controller capabilities
	VS   = 0x08 // version
	CC   = 0x14 // controller configuration
	CSTS = 0x1c // controller status
)

// Version is the version of the base specification that controllers report: 1.4.
const Version = 0x00010400

// Feature is the identifier of a feature (Base 5.21.1).
type Feature uint8

// Features.
const (
	Arbitration          Feature = 0x01
	PowerManagement      Feature = 0x02
	TemperatureThreshold Feature = 0x04
	ErrorRecovery        Feature = 0x05
	VolatileWriteCache   Feature = 0x06
	NumberOfQueues       Feature = 0x07
	WriteAtomicity       Feature = 0x0a
	AsyncEventConfig     Feature = 0x0b
	KeepAliveTimer       Feature = 0x0f
	HostIdentifier       Feature = 0x81
)

// Identifiers of log pages (Base 5.14.1, Fabrics 5.3).
const (
	ErrorLog     = 0x01
	HealthLog    = 0x02
	FirmwareLog  = 0x03
	EffectsLog   = 0x05
	DiscoveryLog = 0x70
)

// Controller or namespace structures of Identify (Base 5.15.1).
const (
	CNSNamespace   = 0x00
	CNSController  = 0x01
	CNSActiveList  = 0x02
	CNSDescriptors = 0x03
	CNSLimits      = 0x06 // of a command set
)

// AllNamespaces is the namespace identifier that stands for all namespaces.
const AllNamespaces = 0xffffffff

// pad copies text to a field and fills the rest with spaces.
func pad(b []byte, text string) {
	for i := copy(b, text); i < len(b); i++ {
		b[i] = ' '
	}
}

// cString returns the text of a field up to its first zero.
func cString(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
