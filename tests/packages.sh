#!/usr/bin/env bash
# Install missing Debian packages if run as root; otherwise print the command that installs them.
set -euo pipefail
wanted=("$@")
if [ ${#wanted[@]} -eq 0 ]; then
  wanted=(
    postgresql redis-server # the second database backend, and the bus between daemons
    libreoffice-writer libreoffice-impress libreoffice-calc # office files by another program, and conversions
    imagemagick webp libheif-examples libavif-bin icnsutils ffmpeg # images and sound by other programs
    ghostscript poppler-utils qpdf                          # PDFs by other programs
    chromium fonts-dejavu-core                              # print-to-PDF, screenshots
    tesseract-ocr tesseract-ocr-eng libmagic1               # readers to compare with
    bubblewrap ripgrep                                      # the command sandbox; a search to compare with
    strace                                                  # network calls, and disk failures
    zsh                                                     # completion in another shell
    xvfb xclip sway wl-clipboard                            # clipboards with an image on them
    tmux openssh-server                                     # terminals for the terminal UI, local and remote
  )
fi
missing=()
if [ $# -eq 0 ] && ! command -v npm >/dev/null; then
  missing+=(nodejs npm) # the web client, and the reference MCP server
fi
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "The tests need programs that are not installed. Run: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
