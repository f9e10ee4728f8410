#include <string>

#include "check.hpp"
#include "perfpass/openvino_document.hpp"

namespace {

using perfpass::OpenvinoDocument;
using perfpass::plain_openvino;

const std::string kData = "<data element_type=\"f32\" name=\"a &lt; &quot;b&quot;\"/>";
const std::string kOutput =
    "<output><port id=\"1\" precision=\"FP32\" names=\"x,y\"><dim>2</dim><dim>-1</dim>"
    "<dim>1..8</dim><dim>?</dim></port></output>";

std::string layer(int number, const std::string& inner) {
  return "<layer id=\"" + std::to_string(number) + "\" name='n' type=\"Add\" version=\"opset1\">" + inner +
         "</layer>\n";
}

std::string network(const std::string& layers, const std::string& edges = "",
                    const std::string& rest = "<rt_info><a b=\"c\">text<d/></a></rt_info>") {
  return "<?xml version=\"1.0\"?>\n<net name=\"n\" version=\"11\">\n<layers>" + layers + "</layers><edges>" + edges +
         "</edges>" + rest + "</net>\n";
}

TEST(an_openvino_document_is_read_as_it_is_written_and_what_is_alike_stands_once) {
  const std::string text = network(
      layer(3, kData + "<input><port id=\"0\"><dim>4</dim></port></input>" + kOutput) +
          layer(5, "<rt_info/>" + kData + "<input><port id=\"0\"><dim>4</dim></port></input>" + kOutput) + layer(7, ""),
      "<edge from-layer=\"3\" from-port=\"1\" to-layer=\"5\" to-port=\"0\" />");
  const auto found = plain_openvino(text);
  CHECK(found.has_value());
  CHECK(found->layers.size() == 3 && found->ports.size() == 2 && found->edges.size() == 1);
  CHECK(found->data.size() == 1 && found->inputs.size() == 1 && found->shapes.size() == 1);
  CHECK(decode(found->data[0][1].second) == "a < \"b\"");
  CHECK((found->shapes[0] == std::vector<std::int64_t>{2, -1, -1, -1}));
  CHECK(found->ports[1].number == 1 && found->ports[1].names.raw == "x,y");
  CHECK(found->layers[1].number == 5 && found->layers[1].first_output == 1 && found->layers[1].last_output == 2);
  CHECK(found->layers[2].data == perfpass::OpenvinoLayer::kNone && found->layers[2].first_output == 2);
  CHECK(found->edges[0].reader == 5 && found->edges[0].writer == 3 && found->edges[0].writer_port == 1);
}

TEST(an_openvino_document_with_anything_unusual_is_left_to_the_reader_of_all) {
  CHECK(plain_openvino(network(layer(0, ""))).has_value());
  const std::string port = "<output><port id=\"0\">";
  for (const std::string& inner : {std::string("<!-- -->"),
                                   std::string("<body><layers/></body>"),
                                   std::string("text"),
                                   std::string("<![CDATA[]]>"),
                                   std::string("<data a=\"1\" a=\"2\"/>"),
                                   std::string("<data a=\"&#65;\"/>"),
                                   std::string("<data a=\"<\"/>"),
                                   std::string("<data a=\"\t\"/>"),
                                   std::string("<data a=1/>"),
                                   std::string("<data xmlns=\"a\"/>"),
                                   std::string("<data b:a=\"1\"/>"),
                                   std::string("<data/><data/>"),
                                   std::string("<input/><input/>"),
                                   std::string("<output/><output/>"),
                                   std::string("<input><port/></input>"),
                                   std::string("<input><dim/></input>"),
                                   std::string("<data a=\"1\"b=\"2\"/>"),
                                   std::string("<rt_info>&amp;</rt_info>"),
                                   std::string("<rt_info>]]></rt_info>"),
                                   std::string("<rt_info><a></rt_info></a>"),
                                   port + "<rank/></port></output>",
                                   port + "<dim>x</dim></port></output>",
                                   port + "<dim>281474976710657</dim></port></output>",
                                   port + "<dim/></port></output>"}) {
    CHECK(!plain_openvino(network(layer(0, inner))).has_value());
  }
  CHECK(!plain_openvino(network("<layer id=\"0\" name=\"n\"/>")).has_value());
  CHECK(!plain_openvino(network("<layer id=\"-1\" type=\"Add\"/>")).has_value());
  CHECK(!plain_openvino(network(layer(0, ""), "<edge from-layer=\"0\"/>")).has_value());
  CHECK(!plain_openvino(network(layer(0, ""), "", "<layers/>")).has_value());
  CHECK(!plain_openvino(network(layer(0, "")) + "<net/>").has_value());
  CHECK(!plain_openvino("<net version=\"9\"><layers></layers></net>").has_value());
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "<a>";
  for (int i = 0; i < 300; ++i) deep += "</a>";
  CHECK(!plain_openvino(network(layer(0, ""), "", deep)).has_value());
  const std::string whole = network(layer(3, kData + kOutput));
  for (std::size_t i = 0; i + 1 < whole.size(); ++i) CHECK(!plain_openvino(whole.substr(0, i)).has_value());
}

}  // namespace
