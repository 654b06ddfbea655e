# embed.cmake - files as bytes inside a program: one table of (name, text), by the assembler's
# .incbin, so that nothing is escaped and nothing is slow.
#
# Names: templates/x.cu -> "x.cu", kernels/x.cuh -> "x.cuh", kernels/device/x.cuh ->
# "device/x.cuh", kernels/cpu/x.c -> "cpu/x.c", compiler/ir/forms.def -> "forms.def"; others have their path: specs/x.lua -> "specs/x.lua".
function(ftx_embed out)
  set(code "/* Made by cmake/embed.cmake. */\n#include \"compiler/embed.h\"\n\n")
  set(rows "")
  set(i 0)
  set(files ${ARGN})
  list(SORT files)
  foreach(file ${files})
    string(REGEX REPLACE "^(templates|kernels|compiler/ir)/" "" name ${file})
    string(APPEND code "__asm__(\".section .rodata\\n.balign 16\\nembedded_${i}:\\n.incbin \\\"${CMAKE_SOURCE_DIR}/${file}\\\"\\n.byte 0\\n.previous\\n\");\n")
    string(APPEND code "extern const char embedded_${i}[] __attribute__((visibility(\"hidden\")));\n")
    string(APPEND rows "    {\"${name}\", embedded_${i}},\n")
    math(EXPR i "${i} + 1")
  endforeach()
  string(APPEND code "\nconst EmbeddedFile embedded_files[] = {\n${rows}    {0, 0},\n};\n")
  string(APPEND code "const size_t embedded_count = ${i};\n")
  file(CONFIGURE OUTPUT ${out} CONTENT "${code}" @ONLY)
  set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed.cmake")
  set(deps "")
  foreach(file ${files})
    list(APPEND deps ${CMAKE_SOURCE_DIR}/${file})
  endforeach()
  set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS "${deps}")
endfunction()

# ftx_embed_program(OUT NAME TARGET): the bytes of a program that this build makes, from NAME to NAME_end.
function(ftx_embed_program out name target)
  set(code "/* Made by cmake/embed.cmake. */\n#include \"compiler/embed.h\"\n\n")
  string(APPEND code "__asm__(\".section .rodata\\n.balign 4096\\n${name}:\\n.incbin \\\"${CMAKE_BINARY_DIR}/${target}\\\"\\n${name}_end:\\n.byte 0\\n.previous\\n.globl ${name}, ${name}_end\\n\");\n")
  file(CONFIGURE OUTPUT ${out} CONTENT "${code}" @ONLY)
  set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS ${CMAKE_BINARY_DIR}/${target})
endfunction()
