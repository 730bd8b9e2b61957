module github.com/softmkey/softmkey/interop

go 1.26.0
