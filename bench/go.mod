module github.com/softmkey/softmkey/bench

go 1.26.0

replace github.com/softmkey/softmkey => ../

require (
	github.com/minio/crc64nvme v1.1.1
	github.com/softmkey/softmkey v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.49.0
	gvisor.dev/gvisor v0.0.0-20250503011706-39ed1f5ac29c
)

require github.com/klauspost/cpuid/v2 v2.2.9 // indirect
