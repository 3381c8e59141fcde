# SPDX-License-Identifier: Apache-2.0
"""Files of weights that others wrote: flax's msgpack read as it is, hostile ones refused, foreign ones named."""

import struct

import pytest

np = pytest.importorskip("numpy")

import quern  # noqa: E402
from quern import _msgpack, _safetensors, convert_learned_optimizer  # noqa: E402
from test_convert_learned_optimizer import MLP, RNN, WEIGHTS, small_fc_theta, stepped, velo_theta  # noqa: E402


def packed(value):
    """As flax.serialization.to_bytes does."""
    if isinstance(value, tuple):
        value = {str(k): each for k, each in enumerate(value)}
    if isinstance(value, dict):
        return b"\xde" + struct.pack(">H", len(value)) + b"".join(packed(k) + packed(v) for k, v in value.items())
    if isinstance(value, list):
        return bytes([0x90 + len(value)]) + b"".join(map(packed, value))
    if isinstance(value, str):
        return b"\xd9" + bytes([len(value)]) + value.encode()
    if isinstance(value, int):
        return b"\xce" + struct.pack(">I", value)
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    inner = packed([list(value.shape), value.dtype.name, np.ascontiguousarray(value).tobytes()])
    return b"\xc9" + struct.pack(">I", len(inner)) + b"\x01" + inner


def test_theta_is_read_as_it_is(tmp_path):
    path = tmp_path / "theta.state"
    path.write_bytes(packed({"params": small_fc_theta(), "gen_id": "", "step": 7}))
    made = quern.SmallFCLopt([(3, 4)], path)
    assert made.m_decays == convert_learned_optimizer.decays(small_fc_theta())["m_decays"]
    assert np.array_equal(stepped(made), stepped(quern.SmallFCLopt([(3, 4)], WEIGHTS, m_decays=made.m_decays,
        v_decay=made.v_decay, factor_decays=made.factor_decays)))  # fmt: skip
    path.write_bytes(packed(velo_theta()))
    one, other = quern.VeLO([(3, 4)], path, path, 10), quern.VeLO([(3, 4)], MLP, RNN, 10)
    assert np.array_equal(stepped(one, 1.0), stepped(other, 1.0))
    with pytest.raises(ValueError, match=r"SmallFCLopt: weights: .*theta\.state: theta has no"):
        quern.SmallFCLopt([(3, 4)], path)


def test_every_truncation_is_refused(tmp_path):
    path, whole = tmp_path / "t", packed({"a": np.ones(3, np.float32), "b": [1, "x"]})
    path.write_bytes(whole)
    assert _msgpack.read(path)["a"].tolist() == [1, 1, 1]
    for n in range(len(whole)):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match="is read as msgpack, as flax writes it: "):
            _msgpack.read(path)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x81\xa1a" + b"\x91" * 100000 + b"\x01", "nested more than 32 deep"),
        (b"\xdf\xff\xff\xff\xff", "4294967295 members are wanted"),
        (b"\x81\xa1a\xc6\xff\xff\xff\xff", "4294967295 bytes are wanted"),
        (b"\x81\xa1a\x01\x00", "1 bytes lie behind"),
        (b"\x81\x01\x01", "a key is int"),
        (b"\x82\xa1a\x01\xa1a\x02", "one key twice"),
        (b"\x81\xa1a\xc1", "begins no value"),
        (b"\x81\xa1a\xd4\x07\x00", "extension of the code 7"),
        (packed({"a": np.ones(3, "complex64")}), "is of 'complex64'"),
        (packed({"a": np.ones(3, "f4")}).replace(b"\xce\0\0\0\x03", b"\xce\xff\0\0\0"), "another number of bytes"),
    ],
)
def test_hostile_files_are_refused(data, sentence, tmp_path):
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(ValueError, match=sentence):
        _msgpack.read(tmp_path / "t")


@pytest.mark.parametrize(
    ("head", "sentence"),
    [
        (b"PK\x03\x04" + b"\0" * 26 + b"archive/data.pkl", "a zip archive, as torch.save writes: convert it"),
        (b"PK\x03\x04" + b"\0" * 26 + b"nn.npy", "a .npz file of NumPy's: convert it"),
        (b"\x80\x02}q\x00.", "it is a pickle, which is not read"),
        (b"\n<!DOCTYPE html><html>", "it is a web page: download the file itself"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "it is a pointer of Git LFS"),
    ],
)
def test_foreign_files_are_named(head, sentence, tmp_path):
    (tmp_path / "w.safetensors").write_bytes(head)
    with pytest.raises(ValueError, match=rf"SmallFCLopt: weights: .*w\.safetensors.*; .*{sentence}"):
        quern.SmallFCLopt([(3, 4)], tmp_path / "w.safetensors")


def test_multipliers_in_a_file_are_obeyed(tmp_path):
    path = tmp_path / "w.safetensors"
    convert_learned_optimizer.save(path, WEIGHTS, {"step_mult": "0.25", "exp_mult": "0.5"})
    made = quern.SmallFCLopt([(3, 4)], path)
    assert (made.step_mult, made.exp_mult) == (0.25, 0.5)
    assert quern.SmallFCLopt([(3, 4)], path, step_mult=2.0).step_mult == 2.0
    assert quern.SmallFCLopt([(3, 4)], WEIGHTS).step_mult == 0.01
    assert _safetensors.foreign(path) == ""
    convert_learned_optimizer.save(path, WEIGHTS, {"step_mult": "many"})
    with pytest.raises(ValueError, match="says that step_mult is 'many', which must be a number"):
        quern.SmallFCLopt([(3, 4)], path)
