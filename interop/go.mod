module github.com/softmkey/softmkey/interop

go 1.26.0

require (
	github.com/softmkey/softmkey v0.0.0
	golang.org/x/crypto v0.58.0
)

require (
	github.com/gopacket/gopacket v1.7.7 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0
)

replace github.com/softmkey/softmkey => ../
