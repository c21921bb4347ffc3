#!/usr/bin/env python3
"""Makes stored.json: secrets stored by the libraries whose formats are read, at costs that tests can afford.

    pip install passlib==1.7.4 Django==5.2.* argon2-cffi==25.1.0 bcrypt==4.0.1
    python3 make.py > stored.json

What .NET, Keycloak and Ory Hydra store is put together here from their documented layouts, with Python's hashlib for
the hash. Salts are fixed where a library lets them be, so that the output changes as little as possible.
"""

import base64
import hashlib
import json
import struct

import argon2
import bcrypt
import django
from argon2.low_level import Type, hash_secret
from django.conf import settings
from django.contrib.auth import hashers
from passlib.hash import argon2 as passlib_argon2
from passlib.hash import bcrypt_sha256
from passlib.hash import pbkdf2_sha1, pbkdf2_sha256, pbkdf2_sha512
from passlib.hash import scrypt as passlib_scrypt

settings.configure()
django.setup()

SECRETS = ["correct horse battery staple", "pässwörd ✓", "x", "k" * 72, "a%2Bb+c d", "L" * 200]
SALT = bytes(range(16))
vectors = []


def add(made_by, stored, secret, profile):
    vectors.append({"made_by": made_by, "secret": secret, "stored": stored, "profile": profile})


def b64(data, padded=True):
    text = base64.b64encode(data).decode()
    return text if padded else text.rstrip("=")


for secret in SECRETS:
    raw = secret.encode()

    for name, scheme, length in [("sha1", pbkdf2_sha1, 20), ("sha256", pbkdf2_sha256, 32), ("sha512", pbkdf2_sha512, 64)]:
        stored = scheme.using(rounds=1000, salt=SALT + b"\xfb\xff").hash(secret)
        add("passlib", stored, secret, f"pbkdf2-{name};i=1000;l={length}")
    add("passlib", passlib_scrypt.using(rounds=4, block_size=8, parallelism=2, salt=SALT).hash(secret), secret,
        "scrypt;ln=4;r=8;p=2;l=32")
    add("passlib", passlib_argon2.using(type="ID", rounds=2, memory_cost=64, parallelism=2, salt=SALT).hash(secret),
        secret, "argon2;id;m=64;t=2;p=2;l=32")

    for version, ident in [(1, "2a"), (1, "2b"), (2, "2b")]:
        hasher = bcrypt_sha256.using(rounds=4, version=version, ident=ident, salt="S0meSaltOf22Characteru")
        add("passlib", hasher.hash(secret), secret, "bcrypt;c=4")

    for kind, name in [(Type.ID, "id"), (Type.I, "i")]:
        for version in (19, 16):
            stored = hash_secret(raw, SALT, time_cost=3, memory_cost=32, parallelism=1, hash_len=32, type=kind,
                                 version=version).decode()
            add("argon2-cffi", stored, secret, f"argon2;{name};m=32;t=3;p=1;l=32")

    if len(raw) <= 72:
        for prefix in (b"2b", b"2a"):
            add("bcrypt", bcrypt.hashpw(raw, bcrypt.gensalt(4, prefix)).decode(), secret, "bcrypt;c=4")
        salt = bcrypt.gensalt(4)
        add("Django", "bcrypt$" + bcrypt.hashpw(raw, salt).decode(), secret, "bcrypt;c=4")

    add("Django", hashers.PBKDF2PasswordHasher().encode(secret, "S0meSaltOf22Characters", 1000), secret,
        "pbkdf2-sha256;i=1000;l=32")
    add("Django", hashers.PBKDF2SHA1PasswordHasher().encode(secret, "S0meSaltOf12", 1000), secret,
        "pbkdf2-sha1;i=1000;l=20")
    hasher = hashers.BCryptSHA256PasswordHasher()
    hasher.rounds = 4
    add("Django", hasher.encode(secret, hasher.salt()), secret, "bcrypt;c=4")
    hasher = hashers.ScryptPasswordHasher()
    hasher.work_factor, hasher.parallelism = 16, 1
    add("Django", hasher.encode(secret, "S0meSaltOf22Characters"), secret, "scrypt;ln=4;r=8;p=1;l=64")
    hasher = hashers.Argon2PasswordHasher()
    hasher.time_cost, hasher.memory_cost, hasher.parallelism = 1, 64, 2
    add("Django", hasher.encode(secret, "S0meSaltOf22Characters"), secret, "argon2;id;m=64;t=1;p=2;l=32")

    # PHC strings, as RustCrypto and others write them; Ory Hydra's have the same shape.
    for digest, length in [("sha1", 20), ("sha256", 32), ("sha512", 64)]:
        derived = hashlib.pbkdf2_hmac(digest, raw, SALT, 1000, length)
        add("PHC", f"$pbkdf2-{digest}$i=1000,l={length}${b64(SALT, False)}${b64(derived, False)}", secret,
            f"pbkdf2-{digest};i=1000;l={length}")
    for name, digest, bits in [("sha224", "sha3_224", 224), ("sha384", "sha3_384", 384)]:
        derived = hashlib.pbkdf2_hmac(digest, raw, SALT, 1000, 32)
        add("Ory Hydra", f"$pbkdf2-{name}$i=1000,l=32${b64(SALT, False)}${b64(derived, False)}", secret,
            f"pbkdf2-sha3;b={bits};i=1000;l=32")

    v2 = b"\x00" + SALT + hashlib.pbkdf2_hmac("sha1", raw, SALT, 1000, 32)
    add("ASP.NET Core Identity V2", b64(v2), secret, "pbkdf2-sha1;i=1000;l=32")
    for prf, digest in enumerate(["sha1", "sha256", "sha512"]):
        derived = hashlib.pbkdf2_hmac(digest, raw, SALT, 1000, 32)
        v3 = b"\x01" + struct.pack(">III", prf, 1000, len(SALT)) + SALT + derived
        add("ASP.NET Core Identity V3", b64(v3), secret, f"pbkdf2-{digest};i=1000;l=32")
    # OpenIddict's own sizes are those of V3 with SHA-256 × 10,000.
    derived = hashlib.pbkdf2_hmac("sha256", raw, SALT, 10000, 32)
    add("OpenIddict", b64(b"\x01" + struct.pack(">III", 1, 10000, 16) + SALT + derived), secret,
        "pbkdf2-sha256;i=10000;l=32")
    add("Duende", b64(hashlib.sha256(raw).digest()), secret, "digest;l=32")
    add("Duende", b64(hashlib.sha512(raw).digest()), secret, "digest;l=64")

    for algorithm, digest, length in [("pbkdf2", "sha1", 64), ("pbkdf2-sha256", "sha256", 64),
                                      ("pbkdf2-sha512", "sha512", 64)]:
        derived = hashlib.pbkdf2_hmac(digest, raw, SALT, 1000, length)
        secret_data = {"value": b64(derived), "salt": b64(SALT), "additionalParameters": {}}
        credential = {"hashIterations": 1000, "algorithm": algorithm, "additionalParameters": {}}
        add("Keycloak", json.dumps({"type": "password", "secretData": json.dumps(secret_data),
                                    "credentialData": json.dumps(credential)}), secret,
            f"pbkdf2-{digest};i=1000;l={length}")
    derived = argon2.low_level.hash_secret_raw(raw, SALT, time_cost=2, memory_cost=64, parallelism=1, hash_len=32,
                                               type=Type.ID, version=19)
    credential = {"hashIterations": 2, "algorithm": "argon2",
                  "additionalParameters": {"hashLength": ["32"], "memory": ["64"], "type": ["id"],
                                           "version": ["1.3"], "parallelism": ["1"]}}
    add("Keycloak", json.dumps({"secretData": {"value": b64(derived), "salt": b64(SALT), "additionalParameters": {}},
                                "credentialData": credential}), secret, "argon2;id;m=64;t=2;p=1;l=32")

print("[")
print(",\n".join(json.dumps(vector, ensure_ascii=True) for vector in vectors))
print("]")
