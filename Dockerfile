# syntax=docker/dockerfile:1
FROM golang:1.26.8-bookworm AS build
ENV GOCACHE=/go/build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/build \
    CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o /worker ./cmd/worker

# No shell and no package manager; certificates and time zones are in it. The tag moves
# with Debian's fixes; a release pins the digest.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /worker /worker
# Exec form: a shell in between would swallow SIGTERM, and with it the drain.
ENTRYPOINT ["/worker"]
CMD ["run"]
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["/worker", "healthcheck"]
