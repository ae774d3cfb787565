"""Checks an S3 door with boto3: round trips, parts, ranges, conditions, listings, refusals.

usage: boto3_check.py ENDPOINT ACCESS_KEY SECRET_KEY [--objects 10000] [--parts-mib 200]
           [--large-gib 0] [only ...]
"""

import argparse
import base64
import hashlib
import http.client
import io
import os
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

CHUNK = 128 << 10


def client(endpoint, access_key, secret_key, **config):
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}, **config),
    )


def refused(code, call, **arguments):
    """The call must fail with this code, or one of these."""
    codes = code if isinstance(code, tuple) else (code,)
    try:
        call(**arguments)
    except ClientError as error:
        found = error.response["Error"]["Code"]
        assert found in codes, f"{found} instead of {codes}: {error}"
        return error
    raise AssertionError(f"nothing was refused, where {codes} was expected")


def body(s3, key, bucket="check", **arguments):
    return s3.get_object(Bucket=bucket, Key=key, **arguments)["Body"].read()


def make_bytes(seed, size):
    block = hashlib.sha256(str(seed).encode()).digest() * 2048
    return (block * (size // len(block) + 1))[:size]


def sizes(s3, options):
    for seed, size in enumerate([0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 10 << 20]):
        data = make_bytes(seed, size)
        put = s3.put_object(Bucket="check", Key="size", Body=data)
        assert put["ETag"] == f'"{hashlib.md5(data).hexdigest()}"', put["ETag"]
        got = s3.get_object(Bucket="check", Key="size")
        assert got["Body"].read() == data and got["ContentLength"] == size, size
        head = s3.head_object(Bucket="check", Key="size")
        assert (head["ContentLength"], head["ETag"]) == (size, put["ETag"])
    return "7 sizes from 0 to 10 MiB"


def checksums(s3, options):
    data = make_bytes(9, 300_000)
    for algorithm in ["CRC32", "SHA1", "SHA256"]:
        put = s3.put_object(Bucket="check", Key="sum", Body=data, ChecksumAlgorithm=algorithm)
        name = f"Checksum{algorithm}"
        head = s3.head_object(Bucket="check", Key="sum", ChecksumMode="ENABLED")
        assert put[name] == head[name], algorithm
    crc = base64.b64encode(zlib.crc32(b"other").to_bytes(4, "big")).decode()
    refused("BadDigest", s3.put_object, Bucket="check", Key="sum", Body=data, ChecksumCRC32=crc)
    md5 = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    refused("BadDigest", s3.put_object, Bucket="check", Key="sum", Body=data, ContentMD5=md5)
    assert body(s3, "sum") == data
    attributes = s3.get_object_attributes(
        Bucket="check", Key="sum", ObjectAttributes=["ETag", "ObjectSize", "Checksum"]
    )
    assert attributes["ObjectSize"] == len(data) and attributes["Checksum"]["ChecksumSHA256"]
    return "3 algorithms, 2 wrong digests refused"


def ranges(s3, options):
    data = make_bytes(3, 3 * CHUNK + 5)
    s3.put_object(Bucket="check", Key="range", Body=data)
    end = len(data)
    for text, part in [
        ("bytes=0-0", data[:1]),
        ("bytes=5-", data[5:]),
        ("bytes=-7", data[-7:]),
        (f"bytes={CHUNK - 1}-{CHUNK}", data[CHUNK - 1 : CHUNK + 1]),
        ("bytes=10-99999999", data[10:]),
    ]:
        got = s3.get_object(Bucket="check", Key="range", Range=text)
        assert got["Body"].read() == part, text
        assert got["ResponseMetadata"]["HTTPStatusCode"] == 206
    refused("InvalidRange", s3.get_object, Bucket="check", Key="range", Range=f"bytes={end}-")
    return "5 ranges, 1 refused"


def conditions(s3, options):
    s3.delete_object(Bucket="check", Key="if")
    first = s3.put_object(Bucket="check", Key="if", Body=b"1", IfNoneMatch="*")["ETag"]
    refused("PreconditionFailed", s3.put_object, Bucket="check", Key="if", Body=b"2", IfNoneMatch="*")
    second = s3.put_object(Bucket="check", Key="if", Body=b"2", IfMatch=first)["ETag"]
    refused("PreconditionFailed", s3.put_object, Bucket="check", Key="if", Body=b"3", IfMatch=first)
    refused("NoSuchKey", s3.put_object, Bucket="check", Key="no", Body=b"3", IfMatch=first)
    assert body(s3, "if", IfMatch=second) == b"2"
    refused("304", s3.get_object, Bucket="check", Key="if", IfNoneMatch=second)
    refused("PreconditionFailed", s3.get_object, Bucket="check", Key="if", IfMatch=first)
    modified = s3.head_object(Bucket="check", Key="if")["LastModified"]
    refused("304", s3.get_object, Bucket="check", Key="if", IfModifiedSince=modified)
    # Of many who want to be first, one is.
    won = []

    def race(number):
        try:
            s3.put_object(Bucket="check", Key="race", Body=str(number).encode(), IfNoneMatch="*")
            won.append(number)
        except ClientError as error:
            assert error.response["Error"]["Code"] == "PreconditionFailed", error

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(won) == 1 and body(s3, "race") == str(won[0]).encode(), won
    return "tags, times, and a race of 8 with one winner"


def metadata(s3, options):
    s3.put_object(
        Bucket="check",
        Key="meta",
        Body=b"x",
        ContentType="text/plain",
        CacheControl="no-store",
        ContentDisposition="inline",
        ContentEncoding="identity",
        Metadata={"colour": "blue"},
    )
    head = s3.head_object(Bucket="check", Key="meta")
    assert head["Metadata"] == {"colour": "blue"} and head["ContentType"] == "text/plain"
    assert head["CacheControl"] == "no-store" and head["ContentEncoding"] == "identity"
    large = {"large": "x" * 3000}
    refused("MetadataTooLarge", s3.put_object, Bucket="check", Key="m", Body=b"x", Metadata=large)
    for key in ["a b+c", "a/../b", "..", "%2F", "a//b/", "ключ/鍵/🦀", "q?x=1&y", "~*'()", "x" * 1024]:
        s3.put_object(Bucket="check", Key=f"{key}"[:1024], Body=key.encode())
        assert body(s3, key[:1024]) == key.encode(), key
        s3.delete_object(Bucket="check", Key=key[:1024])
    return "headers, user metadata, 9 odd keys"


def copies(s3, options):
    data = make_bytes(4, CHUNK + 1)
    s3.put_object(Bucket="check", Key="from", Body=data, Metadata={"a": "1"})
    source = {"Bucket": "check", "Key": "from"}
    s3.copy_object(Bucket="check", Key="to", CopySource=source)
    assert body(s3, "to") == data
    assert s3.head_object(Bucket="check", Key="to")["Metadata"] == {"a": "1"}
    replace = {"MetadataDirective": "REPLACE", "Metadata": {"b": "2"}}
    s3.copy_object(Bucket="check", Key="from", CopySource=source, **replace)
    assert s3.head_object(Bucket="check", Key="from")["Metadata"] == {"b": "2"}
    refused("InvalidRequest", s3.copy_object, Bucket="check", Key="from", CopySource=source)
    absent = {"Bucket": "check", "Key": "absent"}
    refused("NoSuchKey", s3.copy_object, Bucket="check", Key="to", CopySource=absent)
    s3.delete_object(Bucket="check", Key="from")
    assert body(s3, "to") == data
    return "with and without new metadata"


def parts(s3, options):
    size = options.parts_mib << 20
    data = make_bytes(5, size)
    config = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20)
    start = time.monotonic()
    s3.upload_fileobj(io.BytesIO(data), "check", "parts", Config=config)
    put_s = time.monotonic() - start
    start = time.monotonic()
    sink = io.BytesIO()
    s3.download_fileobj("check", "parts", sink, Config=config)
    get_s = time.monotonic() - start
    assert sink.getbuffer() == memoryview(data), "the object differs"
    md5s = [hashlib.md5(data[at : at + (8 << 20)]).digest() for at in range(0, size, 8 << 20)]
    etag = f'"{hashlib.md5(b"".join(md5s)).hexdigest()}-{len(md5s)}"'
    if len(md5s) > 1:
        assert s3.head_object(Bucket="check", Key="parts")["ETag"] == etag
    assert not s3.list_multipart_uploads(Bucket="check").get("Uploads")
    rates = f"up {options.parts_mib / put_s:.0f}, down {options.parts_mib / get_s:.0f} MiB/s"
    return f"{options.parts_mib} MiB in {len(md5s)} parts, {rates}"


class Large(io.RawIOBase):
    """So many bytes that no memory and no disk is needed for: read as a source, or written as a sink,
    which compares. The block's length is odd, so no two parts or chunks are alike."""

    BLOCK = make_bytes(7, (16 << 20) + 12345)

    def __init__(self, size):
        self.size, self.at = size, 0

    def next(self, count):
        count, parts = min(count, self.size - self.at), []
        while count > 0:
            start = self.at % len(self.BLOCK)
            part = self.BLOCK[start : start + count]
            parts.append(part)
            self.at += len(part)
            count -= len(part)
        return b"".join(parts)

    def readable(self):
        return True

    def read(self, count=-1):
        return self.next(self.size if count < 0 else count)

    def writable(self):
        return True

    def write(self, data):
        at = self.at
        assert self.next(len(data)) == bytes(data), f"other bytes after {at}"
        return len(data)


def large(s3, options):
    size = options.large_gib << 30
    config = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=64 << 20, max_concurrency=4)
    start = time.monotonic()
    s3.upload_fileobj(Large(size), "check", "large", Config=config)
    put_s = time.monotonic() - start
    assert s3.head_object(Bucket="check", Key="large")["ContentLength"] == size
    start = time.monotonic()
    sink = Large(size)
    s3.download_fileobj("check", "large", sink, Config=config)
    get_s = time.monotonic() - start
    assert sink.at == size, f"{sink.at} of {size} bytes"
    s3.delete_object(Bucket="check", Key="large")
    rates = f"up in {put_s:.0f} s ({size / put_s / 1e6:.0f} MB/s), "
    return f"{options.large_gib} GiB: {rates}down in {get_s:.0f} s ({size / get_s / 1e6:.0f} MB/s)"


def part_rules(s3, options):
    def create(**arguments):
        return s3.create_multipart_upload(Bucket="check", Key="mpu", **arguments)["UploadId"]

    def upload(upload_id, number, data):
        of = {"Bucket": "check", "Key": "mpu", "UploadId": upload_id}
        tag = s3.upload_part(PartNumber=number, Body=data, **of)["ETag"]
        return {"PartNumber": number, "ETag": tag}

    def complete(upload_id, listed):
        of = {"Bucket": "check", "Key": "mpu", "UploadId": upload_id}
        return s3.complete_multipart_upload(MultipartUpload={"Parts": listed}, **of)

    five, odd = make_bytes(1, 5 << 20), make_bytes(2, (5 << 20) + 12345)
    one = create(ContentType="text/x", Metadata={"m": "1"})
    second, first = upload(one, 2, odd), upload(one, 1, five)
    last = upload(one, 7, b"end")
    upload(one, 3, b"left out")
    listed = s3.list_parts(Bucket="check", Key="mpu", UploadId=one)["Parts"]
    assert [part["PartNumber"] for part in listed] == [1, 2, 3, 7]
    uploads = s3.list_multipart_uploads(Bucket="check")["Uploads"]
    assert [upload["UploadId"] for upload in uploads] == [one]
    refused("NoSuchKey", s3.get_object, Bucket="check", Key="mpu")
    refused("InvalidPartOrder", complete, upload_id=one, listed=[second, first])
    wrong = {**first, "ETag": last["ETag"]}
    refused("InvalidPart", complete, upload_id=one, listed=[wrong])
    small = {"PartNumber": 3, "ETag": listed[2]["ETag"]}
    refused("EntityTooSmall", complete, upload_id=one, listed=[first, small, last])
    complete(one, [first, second, last])
    head = s3.head_object(Bucket="check", Key="mpu")
    assert head["ContentType"] == "text/x" and head["Metadata"] == {"m": "1"}
    assert head["ETag"].endswith('-3"') and body(s3, "mpu") == five + odd + b"end"
    refused("NoSuchUpload", complete, upload_id=one, listed=[first])
    alone = create()
    complete(alone, [upload(alone, 4, b"alone")])
    assert body(s3, "mpu") == b"alone"
    aborted = create()
    upload(aborted, 1, five)
    s3.abort_multipart_upload(Bucket="check", Key="mpu", UploadId=aborted)
    refused("NoSuchUpload", upload, upload_id=aborted, number=2, data=b"x")
    copied = create()
    s3.put_object(Bucket="check", Key="source", Body=odd)
    part = s3.upload_part_copy(
        Bucket="check", Key="mpu", UploadId=copied, PartNumber=1,
        CopySource={"Bucket": "check", "Key": "source"}, CopySourceRange="bytes=1-99",
    )["CopyPartResult"]
    complete(copied, [{"PartNumber": 1, "ETag": part["ETag"]}])
    assert body(s3, "mpu") == odd[1:100]
    whole = s3.create_multipart_upload(
        Bucket="check", Key="sum", ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT"
    )["UploadId"]
    of = {"Bucket": "check", "Key": "sum", "UploadId": whole}
    listed = []
    for number, data in [(1, five), (2, b"rest")]:
        sent = s3.upload_part(PartNumber=number, Body=data, ChecksumAlgorithm="CRC32", **of)
        keys = {"ETag": sent["ETag"], "ChecksumCRC32": sent["ChecksumCRC32"]}
        listed.append({"PartNumber": number, **keys})
    done = s3.complete_multipart_upload(MultipartUpload={"Parts": listed}, **of)
    crc = base64.b64encode(zlib.crc32(five + b"rest").to_bytes(4, "big")).decode()
    assert done["ChecksumCRC32"] == crc, done
    summed = create(ChecksumAlgorithm="SHA256")
    of = {"Bucket": "check", "Key": "mpu", "UploadId": summed}
    listed = []
    for number, text in [(1, f"bytes=0-{len(five) - 1}"), (2, "bytes=7-99")]:
        copied = s3.upload_part_copy(
            PartNumber=number, CopySource="check/source", CopySourceRange=text, **of
        )["CopyPartResult"]
        keys = {"ETag": copied["ETag"], "ChecksumSHA256": copied["ChecksumSHA256"]}
        listed.append({"PartNumber": number, **keys})
    done = s3.complete_multipart_upload(MultipartUpload={"Parts": listed}, **of)
    halves = [odd[: len(five)], odd[7:100]]
    sums = hashlib.sha256(b"".join(hashlib.sha256(half).digest() for half in halves)).digest()
    assert done["ChecksumSHA256"] == f"{base64.b64encode(sums).decode()}-2", done
    assert body(s3, "mpu") == b"".join(halves)
    return "order, sizes, tags, abort, copy, one part, whole checksum, checksums of copied parts"


def deletes(s3, options):
    keys = [f"gone/{number}" for number in range(20)]
    for key in keys:
        s3.put_object(Bucket="check", Key=key, Body=b"x")
    named = [{"Key": key} for key in keys + ["gone/absent"]]
    done = s3.delete_objects(Bucket="check", Delete={"Objects": named})
    assert len(done["Deleted"]) == 21 and not done.get("Errors")
    assert s3.list_objects_v2(Bucket="check", Prefix="gone/")["KeyCount"] == 0
    s3.delete_object(Bucket="check", Key="gone/absent")
    return "21 in one request"


def listings(s3, options):
    s3.create_bucket(Bucket="many")
    count = options.objects
    start = time.monotonic()

    def fill(worker):
        own = client(*options.server)
        for number in range(worker, count, 8):
            own.put_object(Bucket="many", Key=f"d{number % 100:02}/k{number:06}", Body=b"x")

    threads = [threading.Thread(target=fill, args=(worker,)) for worker in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    put_s = time.monotonic() - start
    start = time.monotonic()
    pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket="many"))
    found = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
    list_s = time.monotonic() - start
    assert found == sorted(f"d{number % 100:02}/k{number:06}" for number in range(count))
    folded = s3.get_paginator("list_objects_v2").paginate(
        Bucket="many", Delimiter="/", PaginationConfig={"PageSize": 7}
    )
    prefixes = [entry["Prefix"] for page in folded for entry in page.get("CommonPrefixes", [])]
    assert prefixes == [f"d{number:02}/" for number in range(min(count, 100))], prefixes
    old = s3.get_paginator("list_objects").paginate(Bucket="many", Prefix="d07/")
    assert len([1 for page in old for _ in page["Contents"]]) == len(range(7, count, 100))
    versions = s3.list_object_versions(Bucket="many", Prefix="d03/", MaxKeys=2)
    assert [entry["VersionId"] for entry in versions["Versions"]] == ["null", "null"]
    after = s3.list_objects_v2(Bucket="many", StartAfter=found[-2])["Contents"]
    assert [entry["Key"] for entry in after] == found[-1:]
    assert s3.get_bucket_versioning(Bucket="many").get("Status") is None
    refused("BucketNotEmpty", s3.delete_bucket, Bucket="many")
    for page in pages:
        named = [{"Key": entry["Key"]} for entry in page["Contents"]]
        s3.delete_objects(Bucket="many", Delete={"Objects": named, "Quiet": True})
    s3.delete_bucket(Bucket="many")
    refused("NoSuchBucket", s3.list_objects_v2, Bucket="many")
    return f"{count} objects put in {put_s:.1f} s, listed in {list_s:.2f} s"


def presigned(s3, options):
    data = make_bytes(6, 100_000)
    named = {"Bucket": "check", "Key": "signed"}
    # Without being told, boto3 makes URLs of version 2 for this region.
    s3 = client(*options.server, signature_version="s3v4")
    put = s3.generate_presigned_url("put_object", Params=named, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(put, data=data, method="PUT")).read()
    get = s3.generate_presigned_url("get_object", Params=named, ExpiresIn=60)
    assert urllib.request.urlopen(get).read() == data
    past = s3.generate_presigned_url("get_object", Params=named, ExpiresIn=1)
    long = s3.generate_presigned_url("get_object", Params=named, ExpiresIn=604801)
    time.sleep(2.1)
    altered = get[:-1] + ("0" if get[-1] != "0" else "1")
    for url, status in [(past, 403), (altered, 403), (get.split("?")[0], 403), (long, 400)]:
        turned_away(status, url)
    # A header that wasn't signed would do something else than what was signed.
    s3.put_object(Bucket="check", Key="secret", Body=b"secret")
    for header, value in [("x-amz-copy-source", "/check/secret"), ("x-amz-meta-a", "b")]:
        unsigned = urllib.request.Request(put, data=b"", method="PUT", headers={header: value})
        assert b"not signed" in turned_away(403, unsigned)
    assert body(s3, "signed") == data
    traced = {"x-amzn-trace-id": "Root=1", "x-amz-user-agent": "check"}
    urllib.request.urlopen(urllib.request.Request(get, headers=traced)).read()
    # Some clients presign headers in the query.
    for method, parameter, status in [
        ("PUT", "x-amz-meta-colour=dark%20blue", 200),
        ("PUT", "x-amz-acl=public-read", 501),
        ("PUT", "Content-Encoding=aws-chunked", 501),
        ("POST", "Content-Type=multipart%2Fform-data%3B%20boundary%3Da", 501),
    ]:
        hoisted = AWSRequest(method, f"{options.server[0]}/check/hoisted?{parameter}")
        S3SigV4QueryAuth(Credentials(*options.server[1:]), "s3", "us-east-1", 60).add_auth(hoisted)
        # urllib says a Content-Type of its own where there is a body.
        data = b"x" if method == "PUT" else None
        request = urllib.request.Request(hoisted.url, data=data, method=method)
        if status == 200:
            urllib.request.urlopen(request).read()
        else:
            turned_away(status, request)
    assert s3.head_object(Bucket="check", Key="hoisted")["Metadata"] == {"colour": "dark blue"}
    # As the AWS SDK for JavaScript, version 2, has what a body is in the query.
    digest = urllib.parse.quote(base64.b64encode(hashlib.md5(b"x").digest()), safe="")
    query = f"Cache-Control=no-store&Content-MD5={digest}&Content-Type=image%2Fpng"
    hoisted = AWSRequest("PUT", f"{options.server[0]}/check/hoisted?{query}")
    S3SigV4QueryAuth(Credentials(*options.server[1:]), "s3", "us-east-1", 60).add_auth(hoisted)
    for data, status in [(b"x", 200), (b"y", 400)]:
        # urllib would say a Content-Type of its own.
        connection = http.client.HTTPConnection(options.server[0].split("//")[1])
        connection.request("PUT", hoisted.url.removeprefix(options.server[0]), body=data)
        assert connection.getresponse().status == status, data
    head = s3.head_object(Bucket="check", Key="hoisted")
    assert (head["ContentType"], head["CacheControl"]) == ("image/png", "no-store"), head
    return "put, get; expired, altered and unsigned refused, and what lasts too long"


def turned_away(status, request):
    try:
        urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        assert error.code == status, error
        return error.read()
    raise AssertionError("a request was let in that should not be")


def swap(request):
    request.body = b"wrong"


def signatures(s3, options):
    endpoint, access_key, secret_key = options.server
    wrong = client(endpoint, access_key, secret_key[:-1] + "x")
    refused("SignatureDoesNotMatch", wrong.list_buckets)
    refused(("SignatureDoesNotMatch", "403"), wrong.put_object, Bucket="check", Key="w", Body=b"x")
    nobody = client(endpoint, "NOBODYNOBODY", secret_key)
    refused(("InvalidAccessKeyId", "NotSignedUp"), nobody.list_buckets)
    old = client(endpoint, access_key, secret_key, signature_version="s3")
    refused("NotImplemented", old.list_buckets)
    # Signed with the hash of other bytes than those that come.
    swapped = client(*options.server, request_checksum_calculation="when_required")
    swapped.meta.events.register("before-send.s3", lambda request, **_: swap(request))
    error = refused("XAmzContentSHA256Mismatch", swapped.put_object, Bucket="check", Key="w", Body=b"right")
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400, error
    refused("NoSuchKey", s3.get_object, Bucket="check", Key="w")
    return "wrong secret, unknown key, version 2, other bytes"


class ChunkedAuth(S3SigV4Auth):
    """Signs a request for a body in aws-chunked."""

    def __init__(self, kind, options):
        super().__init__(Credentials(*options.server[1:]), "s3", "us-east-1")
        self.kind = kind

    def payload(self, request):
        return self.kind


def send_chunks(options, key, kind, wire, decoded):
    """Puts an object in these chunks; the status and what the answer says."""
    headers = {"x-amz-decoded-content-length": str(decoded), "Content-Encoding": "aws-chunked"}
    if kind.endswith("TRAILER"):
        headers["x-amz-trailer"] = "x-amz-checksum-crc32"
    request = AWSRequest("PUT", f"{options.server[0]}/check/{key}", headers, wire)
    ChunkedAuth(kind, options).add_auth(request)
    request = urllib.request.Request(request.url, wire, dict(request.headers.items()), method="PUT")
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def chunks(s3, options):
    unsigned, signed = "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    data = make_bytes(11, 20 << 20)

    def trailer(data):
        crc = base64.b64encode(zlib.crc32(data).to_bytes(4, "big"))
        return b"0\r\nx-amz-checksum-crc32:" + crc + b"\r\n\r\n"

    wires = [b"1400000\r\n" + data + b"\r\n"]
    wires.append(b"000000000A\r\n" + data[:10] + b"\r\n13FFFF6\r\n" + data[10:] + b"\r\n")
    wires.append(b"".join(b"10000\r\n" + data[at : at + 65536] + b"\r\n" for at in range(0, len(data), 65536)))
    for wire in wires:
        found = send_chunks(options, "chunks", unsigned, wire + trailer(data), len(data))
        assert found[0] == 200, found
        assert body(s3, "chunks") == data
        s3.delete_object(Bucket="check", Key="chunks")
    for code, wire in [
        (b"BadDigest", wires[0] + trailer(b"other")),
        (b"IncompleteBody", wires[0][:-1]),
        (b"IncompleteBody", b"140000000\r\n" + data),
        (b"IncompleteBody", wires[0]),
        (b"IncompleteBody", b"+5\r\nabcde\r\n" + trailer(b"abcde")),
    ]:
        size = 5 if wire.startswith(b"+") else len(data)
        status, said = send_chunks(options, "chunks", unsigned, wire, size)
        assert status == 400 and code in said, (status, said)
    signature = b";chunk-signature=" + b"0" * 64 + b"\r\n"
    for code, wire, size in [
        (b"SignatureDoesNotMatch", b"5" + signature + b"abcde\r\n0" + signature + b"\r\n", 5),
        (b"InvalidRequest", b"1400000" + signature + b"abcde", len(data)),
        (b"InvalidRequest", b"100000005" + signature + b"abcde\r\n0" + signature + b"\r\n", 5),
    ]:
        status, said = send_chunks(options, "chunks", signed, wire, size)
        assert status == (403 if code == b"SignatureDoesNotMatch" else 400) and code in said, (status, said)
    refused("NoSuchKey", s3.get_object, Bucket="check", Key="chunks")
    return "large and small, 8 malformed or with wrong checksums refused"


def lifecycle(s3, options):
    refused("NoSuchLifecycleConfiguration", s3.get_bucket_lifecycle_configuration, Bucket="check")
    rules = [
        {"ID": "a", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 3}},
        {
            "ID": "b",
            "Status": "Disabled",
            "Filter": {"Prefix": ""},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
        },
    ]
    s3.put_bucket_lifecycle_configuration(
        Bucket="check", LifecycleConfiguration={"Rules": rules}
    )
    assert s3.get_bucket_lifecycle_configuration(Bucket="check")["Rules"] == rules
    moves = {"ID": "c", "Status": "Enabled", "Filter": {"Prefix": ""}}
    moves["Transitions"] = [{"Days": 1, "StorageClass": "GLACIER"}]
    refused(
        "NotImplemented",
        s3.put_bucket_lifecycle_configuration,
        Bucket="check",
        LifecycleConfiguration={"Rules": [moves]},
    )
    s3.delete_bucket_lifecycle(Bucket="check")
    return "set, shown, refused, taken away"


def unknown(s3, options):
    put = {"Bucket": "check", "Key": "u", "Body": b"x"}
    refused("NotImplemented", s3.put_object, ServerSideEncryption="AES256", **put)
    refused("NotImplemented", s3.put_object, ACL="public-read", **put)
    refused("NotImplemented", s3.put_object, GrantRead="id=somebody", **put)
    refused("NotImplemented", s3.create_bucket, Bucket="public", ACL="public-read")
    refused("NotImplemented", s3.put_object, Tagging="a=b", **put)
    refused("InvalidStorageClass", s3.put_object, StorageClass="GLACIER", **put)
    refused("NoSuchVersion", s3.get_object, Bucket="check", Key="size", VersionId="other")
    refused("NotImplemented", s3.get_bucket_policy, Bucket="check")
    refused("NoSuchBucket", s3.put_object, Bucket="absent", Key="k", Body=b"x")
    s3.put_object(ACL="private", **put)
    refused("BucketAlreadyOwnedByYou", s3.create_bucket, Bucket="check")
    return "10 things that are not there are refused"


CHECKS = [
    sizes, checksums, ranges, conditions, metadata, copies, part_rules, parts, large, deletes, listings,
    presigned, signatures, chunks, lifecycle, unknown,
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server", nargs=3, metavar=("ENDPOINT", "ACCESS_KEY", "SECRET_KEY"))
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--parts-mib", type=int, default=200)
    parser.add_argument("--large-gib", type=int, default=0)
    parser.add_argument("only", nargs="*")
    options = parser.parse_args()
    s3 = client(*options.server)
    s3.create_bucket(Bucket="check")
    failures = 0
    for check in CHECKS:
        if options.only and check.__name__ not in options.only:
            continue
        if check is large and not options.large_gib:
            continue
        start = time.monotonic()
        try:
            said = check(s3, options)
            print(f"ok      {check.__name__:12} {time.monotonic() - start:6.2f} s  {said}", flush=True)
        except Exception as error:
            failures += 1
            print(f"FAILED  {check.__name__:12} {type(error).__name__}: {error}", flush=True)
            if os.environ.get("TRACE"):
                raise
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
