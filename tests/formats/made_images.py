"""Pictures, sounds and clips by the programs that people use: ImageMagick, cwebp, heif-enc, avifenc, ffmpeg."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

from made import make_sample, run

CONVERT = "/usr/bin/convert" if Path("/usr/bin/convert").exists() else shutil.which("convert") or "convert"
PHOTO = ("-size", "96x64", "-seed", "7", "plasma:tomato-steelblue", "-depth", "8")
MARKED = ("-size", "80x40", "xc:white", "-fill", "red", "-draw", "rectangle 0,0 19,9", "-depth", "8")
"""White with a red corner at the top left: shows which way is up."""
CLEAR = ("-size", "64x48", "xc:none", "-fill", "blue", "-draw", "circle 32,24 32,8", "-depth", "8")
FRAMES = ("-delay", "10", "-size", "40x30", "xc:red", "xc:green", "xc:blue")


def _by(command: tuple[str, ...], name: str) -> Path:
    """`name` written by a program; `{}` in the command is where the file goes, `{photo}` a PNG to start from."""
    stem, _, extension = name.rpartition(".")

    def build(path: Path) -> None:
        photo = path.with_name("photo.png")
        if any("{photo}" in part for part in command):
            run(CONVERT, *PHOTO, f"png24:{photo}")
        run(*(part.replace("{photo}", str(photo)).replace("{}", str(path)) for part in command))

    return make_sample(f"{stem}-{zlib.crc32(repr(command).encode()):08x}.{extension}", build)


# name → (media type, command)
_IMAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "rgb.png": ("image/png", (CONVERT, *PHOTO, "png24:{}")),
    "rgba.png": ("image/png", (CONVERT, *CLEAR, "png32:{}")),
    "gray.png": ("image/png", (CONVERT, *PHOTO, "-colorspace", "gray", "{}")),
    "gray-alpha.png": ("image/png", (CONVERT, *CLEAR, "-colorspace", "gray", "-define", "png:color-type=4", "{}")),
    "one-bit.png": ("image/png", (CONVERT, *PHOTO, "-monochrome", "{}")),
    "palette.png": ("image/png", (CONVERT, *PHOTO, "-colors", "16", "png8:{}")),
    "palette-clear.png": ("image/png", (CONVERT, *CLEAR, "-colors", "4", "png8:{}")),
    "rgb16.png": ("image/png", (CONVERT, *PHOTO[:-2], "-depth", "16", "png48:{}")),
    "gray16.png": (
        "image/png",
        (CONVERT, *PHOTO[:-2], "-colorspace", "gray", "-depth", "16", "-define", "png:bit-depth=16", "{}"),
    ),
    "interlaced.png": ("image/png", (CONVERT, *PHOTO, "-interlace", "PNG", "{}")),
    "baseline.jpg": ("image/jpeg", (CONVERT, *PHOTO, "-quality", "85", "{}")),
    "progressive.jpg": ("image/jpeg", (CONVERT, *PHOTO, "-interlace", "JPEG", "{}")),
    "gray.jpg": ("image/jpeg", (CONVERT, *PHOTO, "-colorspace", "gray", "{}")),
    "cmyk.jpg": ("image/jpeg", (CONVERT, *MARKED, "-colorspace", "CMYK", "{}")),
    "still.gif": ("image/gif", (CONVERT, *PHOTO, "{}")),
    "moving.gif": ("image/gif", (CONVERT, *FRAMES, "-loop", "0", "{}")),
    "v3.bmp": ("image/bmp", (CONVERT, *PHOTO, "-type", "TrueColor", "bmp3:{}")),
    "os2.bmp": ("image/bmp", (CONVERT, *PHOTO, "-type", "TrueColor", "bmp2:{}")),
    "v5.bmp": ("image/bmp", (CONVERT, *CLEAR, "bmp:{}")),
    "lossy.webp": ("image/webp", ("cwebp", "-quiet", "-q", "80", "{photo}", "-o", "{}")),
    "lossless.webp": ("image/webp", ("cwebp", "-quiet", "-lossless", "{photo}", "-o", "{}")),
    "clear.webp": ("image/webp", (CONVERT, *CLEAR, "-quality", "80", "{}")),
    "moving.webp": (
        "image/webp",
        ("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc=d=0.4:s=48x32:r=10", "-loop", "0", "{}"),
    ),
    "lzw.tif": ("image/tiff", (CONVERT, *PHOTO, "-compress", "LZW", "{}")),
    "big-endian.tif": ("image/tiff", (CONVERT, *PHOTO, "-endian", "MSB", "-compress", "Zip", "{}")),
    "fax.tif": ("image/tiff", (CONVERT, *PHOTO, "-monochrome", "-compress", "Group4", "{}")),
    "pages.tif": ("image/tiff", (CONVERT, *FRAMES, "{}")),
    "big.tif": ("image/tiff", (CONVERT, *PHOTO, "tiff64:{}")),
    "icon.ico": ("image/x-icon", (CONVERT, *CLEAR, "-define", "icon:auto-resize=48,32,16", "{}")),
    "photo.heic": ("image/heic", ("heif-enc", "-q", "60", "{photo}", "-o", "{}")),
    "photo.avif": ("image/avif", ("avifenc", "-s", "9", "{photo}", "{}")),
    "turned.avif": ("image/avif", ("avifenc", "-s", "9", "--irot", "1", "{photo}", "{}")),
}

_TONE = ("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "sine=frequency=440:duration=2.5:sample_rate=44100")
_SOUNDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "tone.wav": ("audio/wav", (*_TONE, "{}")),
    "float.wav": ("audio/wav", (*_TONE, "-c:a", "pcm_f32le", "-ac", "2", "{}")),
    "surround.wav": (
        "audio/wav",
        (*_TONE, "-af", "pan=5.1|c0=c0|c1=c0|c2=c0|c3=c0|c4=c0|c5=c0", "-c:a", "pcm_s24le", "{}"),
    ),
    "adpcm.wav": ("audio/wav", (*_TONE, "-c:a", "adpcm_ms", "{}")),
    "long.wav": ("audio/wav", (*_TONE, "-rf64", "always", "{}")),
    "mp3.wav": ("audio/wav", (*_TONE, "-c:a", "libmp3lame", "-q:a", "4", "{}")),
    "constant.mp3": ("audio/mpeg", (*_TONE, "-b:a", "64k", "{}")),
    "variable.mp3": ("audio/mpeg", (*_TONE, "-q:a", "4", "{}")),
    "bare.mp3": (
        "audio/mpeg",
        (*_TONE, "-b:a", "64k", "-write_xing", "0", "-id3v2_version", "0", "-write_id3v1", "0", "{}"),
    ),
    "mpeg2.mp3": ("audio/mpeg", (*_TONE, "-ar", "22050", "-ac", "1", "-write_xing", "0", "{}")),
    "tone.flac": ("audio/flac", (*_TONE, "{}")),
    "vorbis.ogg": ("audio/ogg", (*_TONE, "-c:a", "libvorbis", "{}")),
    "tone.opus": ("audio/ogg", (*_TONE, "-c:a", "libopus", "{}")),
    "flac.ogg": ("audio/ogg", (*_TONE, "-c:a", "flac", "{}")),
    "tone.m4a": ("audio/mp4", (*_TONE, "-c:a", "aac", "{}")),
    "fast.m4a": ("audio/mp4", (*_TONE, "-c:a", "aac", "-movflags", "+faststart", "{}")),
    "tone.aac": ("audio/aac", (*_TONE, "-c:a", "aac", "-f", "adts", "{}")),
    "general.mp4": ("audio/mp4", (*_TONE, "-c:a", "aac", "-f", "mp4", "{}")),
}
_CLIP = ("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "testsrc=d=0.5:s=64x48:r=10")
_VIDEOS: dict[str, tuple[str, tuple[str, ...]]] = {
    "clip.mp4": ("video/mp4", (*_CLIP, "-c:v", "mpeg4", "{}")),
    "clip.mov": ("video/quicktime", (*_CLIP, "-c:v", "mpeg4", "{}")),
    "clip.avi": ("video/x-msvideo", (*_CLIP, "{}")),
    "clip.mkv": ("video/matroska", (*_CLIP, "-c:v", "mpeg4", "{}")),
    "clip.webm": ("video/webm", (*_CLIP, "-c:v", "libvpx", "{}")),
    "clip.ogv": ("video/ogg", (*_CLIP, "-c:v", "libtheora", "{}")),
    "clip.flv": ("video/x-flv", (*_CLIP, "{}")),
}
IMAGE_TYPES = {name: media_type for name, (media_type, _) in _IMAGES.items()}
SOUND_TYPES = {name: media_type for name, (media_type, _) in _SOUNDS.items()}
VIDEO_TYPES = {name: media_type for name, (media_type, _) in _VIDEOS.items()}


def sample(name: str) -> bytes:
    """The bytes of a picture, a sound or a clip named above."""
    return sample_path(name).read_bytes()


def sample_path(name: str) -> Path:
    _, command = (_IMAGES | _SOUNDS | _VIDEOS)[name]
    return _by(command, name)
