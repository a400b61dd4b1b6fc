#include "control/session/answer_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace uroce::control {

int AnswerFile::write(std::string_view text, UniqueFd& copy) {
  drop();
  file_.reset(::memfd_create("uroce-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file_.valid()) return errno == EMFILE || errno == ENFILE ? EMFILE : ENOMEM;
  const int fd = file_.get();
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::pwrite(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n <= 0) return ENOMEM;
    done += static_cast<std::size_t>(n);
  }
  // The client can write to it, but does not decide how much there is to drop.
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return ENOMEM;
  copy.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  return copy.valid() ? 0 : EMFILE;
}

void AnswerFile::drop() { user_->closer().close_empty(std::move(file_)); }

}  // namespace uroce::control
