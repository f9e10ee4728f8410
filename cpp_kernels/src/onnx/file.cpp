#include "onnx/file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include "onnx/model.hpp"
#include "perfpass/error.hpp"
#include "support/descriptor.hpp"
#include "support/text.hpp"

namespace perfpass::onnx {
namespace {

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

[[noreturn]] void fail_io(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::io, quoted(path) + " " + what);
}

struct Magic {
  std::size_t offset;
  std::string_view bytes;
  const char* name;
};

using namespace std::string_view_literals;
constexpr std::array kMagics = {
    Magic{0, "\xff\xd8\xff"sv, "a JPEG image"},
    Magic{0, "\x89PNG"sv, "a PNG image"},
    Magic{0, "GIF8"sv, "a GIF image"},
    Magic{0, "%PDF"sv, "a PDF document"},
    Magic{0, "PK\x03\x04"sv, "a ZIP archive (torch.save and .keras write these)"},
    Magic{0, "\x1f\x8b"sv, "a gzip file"},
    Magic{0, "BZh"sv, "a bzip2 file"},
    Magic{0,
          "\xfd"
          "7zXZ"sv,
          "an xz file"},
    Magic{0, "\x28\xb5\x2f\xfd"sv, "a zstd file"},
    Magic{0, "\x89HDF\r\n"sv, "an HDF5 file (Keras .h5)"},
    Magic{0, "GGUF"sv, "a GGUF model"},
    Magic{4, "TFL3"sv, "a TensorFlow Lite model"},
    Magic{4, "ORTM"sv, "an ONNX Runtime flatbuffer (.ort) model"},
    Magic{0,
          "\x7f"
          "ELF"sv,
          "an ELF binary"},
    Magic{0, "\x93NUMPY"sv, "a NumPy array"},
    Magic{0, "\x80\x02"sv, "a Python pickle"},
    Magic{0, "\x80\x03"sv, "a Python pickle"},
    Magic{0, "\x80\x04"sv, "a Python pickle"},
    Magic{0, "\x80\x05"sv, "a Python pickle"},
    Magic{0, "version https://git-lfs"sv, "a Git LFS pointer: the model itself was not fetched (git lfs pull)"},
};

bool starts_with_markup(std::string_view head) {
  std::string lower(head.substr(0, 256));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const auto first = lower.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return false;
  const std::string_view rest = std::string_view(lower).substr(first);
  return rest.starts_with("<!doctype html") || rest.starts_with("<html");
}

bool is_text(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return u == '\t' || u == '\n' || u == '\r' || (u >= 0x20 && u < 0x7f);
  });
}

bool is_safetensors(std::string_view head) {
  if (head.size() < 9 || head[8] != '{') return false;
  // An 8-byte little-endian header length, never past 100 MB, precedes the JSON header.
  return std::all_of(head.begin() + 4, head.begin() + 8, [](char c) { return c == 0; });
}

}  // namespace

ModelFile::ModelFile(const std::string& path, const OnnxLimits& limits) {
  if (path.find('\0') != std::string::npos) fail_io(path, "holds a zero byte and cannot name a file");
  const Descriptor file(path);
  if (file.value() < 0) fail_io(path, "cannot be opened: " + reason(errno));
  FileStatus status;
  if (!examine(file.value(), status)) fail_io(path, "cannot be examined: " + reason(errno));
  if (status.other_kind != nullptr) {
    fail_io(path, std::string(status.other_kind) + "; give the path of an .onnx file");
  }
  if (status.size > limits.file_bytes) {
    throw Error(ErrorCode::limit, quoted(path) + " has " + std::to_string(status.size) + " bytes; at most " +
                                      std::to_string(limits.file_bytes) +
                                      " are read; keep the weights in external data files");
  }
  read(file.value(), status.size, path, limits);
}

std::string recognised_format(std::span<const std::uint8_t> bytes) {
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 512));
  for (const Magic& magic : kMagics) {
    if (head.size() >= magic.offset + magic.bytes.size() &&
        head.substr(magic.offset, magic.bytes.size()) == magic.bytes) {
      return magic.name;
    }
  }
  if (is_safetensors(head)) return "a safetensors file (weights only, without a graph)";
  if (starts_with_markup(head)) return "an HTML page (a download that led to a web page?)";
  if (is_text(head)) return "a text file";
  if (std::all_of(head.begin(), head.end(), [](char c) { return c == 0; })) return "a file of zero bytes";
  return "";
}

}  // namespace perfpass::onnx
