#include "feedrate/profile.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "feedrate/error.hpp"

namespace feedrate {
namespace {

using nlohmann::json;

json l40s() { return json::parse(builtin_profiles().front().json); }

std::string complaint(const std::string& text) {
  try {
    parse_profile(text, "test.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no complaint";
}

std::string complaint_about(const json& document) { return complaint(document.dump()); }

TEST(Profile, TheL40sIsTheFirstOneBuiltIn) {
  ASSERT_FALSE(builtin_profiles().empty());
  EXPECT_EQ(builtin_profiles().front().name, "l40s");
}

TEST(Profile, EveryBuiltInOneIsSound) {
  for (const auto& builtin : builtin_profiles()) {
    const Profile profile = parse_profile(std::string(builtin.json), std::string(builtin.name));
    EXPECT_EQ(profile.name, builtin.name);
    EXPECT_FALSE(profile.source.empty());
  }
}

TEST(Profile, TheL40sCarriesThePublishedFigures) {
  const Profile profile = parse_profile(l40s().dump(), "l40s");
  EXPECT_EQ(profile.shape.batch, 64);
  EXPECT_EQ(profile.shape.image, 512);
  EXPECT_EQ(profile.cores, 8);
  EXPECT_EQ(profile.compute.ms, 155);
  EXPECT_EQ(profile.compute.origin, Origin::kPublished);
  EXPECT_EQ(profile.copy_pinned.ms, 15.5);
  EXPECT_EQ(profile.copy_pinned.origin, Origin::kPublished);
  EXPECT_EQ(profile.make.origin, Origin::kFitted);
  // The baseline's host time is split between making and releasing by assumption.
  EXPECT_EQ(profile.release_private.origin, Origin::kAssumed);
  EXPECT_EQ(profile.launch.origin, Origin::kAssumed);
}

TEST(Profile, CostsScaleAsTheirRuleSays) {
  Profile profile;
  profile.shape = {.batch = 64, .image = 512};
  const BatchShape same = profile.shape;
  const BatchShape half_batch{.batch = 32, .image = 512};
  const BatchShape half_image{.batch = 64, .image = 256};
  const auto scaled = [&](Scaling scaling, const BatchShape& to) {
    return profile.scaled_ms({.ms = 80, .origin = Origin::kMeasured, .scaling = scaling}, to);
  };
  for (const auto& scaling : choices<Scaling>()) {
    EXPECT_EQ(scaled(scaling.value, same), 80) << scaling.name;
  }
  EXPECT_EQ(scaled(Scaling::kConstant, half_batch), 80);
  EXPECT_EQ(scaled(Scaling::kConstant, half_image), 80);
  EXPECT_DOUBLE_EQ(scaled(Scaling::kImages, half_batch), 40);
  EXPECT_EQ(scaled(Scaling::kImages, half_image), 80);
  EXPECT_DOUBLE_EQ(scaled(Scaling::kPixels, half_batch), 40);
  EXPECT_DOUBLE_EQ(scaled(Scaling::kPixels, half_image), 20);
  EXPECT_DOUBLE_EQ(scaled(Scaling::kBytes, half_batch), 40);
  EXPECT_NEAR(scaled(Scaling::kBytes, half_image), 20, 1e-3);  // the labels do not shrink
  EXPECT_EQ(scaled(Scaling::kBytes, {.batch = 64, .image = 512, .empty = true}), 0);
}

TEST(Profile, EveryCostIsReadFromItsKey) {
  json document = l40s();
  double ms = 1;
  for (const auto& [key, cost, optional] : profile_costs()) {
    document[std::string(key)] = {{"ms", ms++}, {"origin", "measured"}, {"scaling", "bytes"}};
  }
  const Profile profile = parse_profile(document.dump(), "test");
  ms = 1;
  for (const auto& [key, cost, optional] : profile_costs()) {
    EXPECT_EQ((profile.*cost).ms, ms++) << key;
    EXPECT_EQ((profile.*cost).origin, Origin::kMeasured) << key;
    EXPECT_EQ((profile.*cost).scaling, Scaling::kBytes) << key;
  }
}

TEST(Profile, WhatIsNotJsonIsSaidWithItsPlace) {
  const std::string text = complaint("{\"name\": \n oops}");
  EXPECT_EQ(text.find("profile test.json is not JSON: "), 0u) << text;
  EXPECT_NE(text.find("line 2"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_EQ(complaint("").find("profile test.json is not JSON: "), 0u);
  EXPECT_EQ(complaint("[1, 2]"), "profile test.json: it must be a JSON object");
  EXPECT_EQ(complaint(R"({"name": 1e999})").find("profile test.json is not JSON: "), 0u);
}

bool is_optional(const std::string& key) {
  const auto costs = profile_costs();
  return std::any_of(costs.begin(), costs.end(),
                     [&](const NamedCost& cost) { return cost.key == key && cost.optional; });
}

TEST(Profile, OfOlderFilesBytesCostWhatFloatsDo) {
  json document = l40s();
  document.erase("make_u8");
  document.erase("normalize");
  const Profile profile = parse_profile(document.dump(), "test");
  EXPECT_EQ(profile.make_u8.ms, profile.make.ms);
  EXPECT_EQ(profile.make_u8.origin, Origin::kAssumed);
  EXPECT_EQ(profile.normalize.ms, 0);
  EXPECT_EQ(profile.normalize.origin, Origin::kAssumed);
}

TEST(Profile, EveryKeyIsNeededButForTheOptionalOnes) {
  const json whole = l40s();
  for (const auto& [key, value] : whole.items()) {
    if (is_optional(key)) {
      continue;
    }
    json document = whole;
    document.erase(key);
    EXPECT_EQ(
        complaint_about(document).find("profile test.json: '" + key + "' is missing: it must be "),
        0u)
        << complaint_about(document);
  }
  for (const std::string key : {"ms", "origin", "scaling"}) {
    json document = l40s();
    document["pin"].erase(key);
    EXPECT_EQ(complaint_about(document).find("profile test.json: 'pin." + key + "' is missing"),
              0u);
  }
}

TEST(Profile, AnUnknownKeyIsAnErrorThatNamesTheKnownOnes) {
  json document = l40s();
  document["computer"] = 1;
  EXPECT_EQ(
      complaint_about(document).find("profile test.json: 'computer' is not known: there are name,"),
      0u)
      << complaint_about(document);
  document = l40s();
  document["make"]["seconds"] = 1;
  EXPECT_EQ(complaint_about(document),
            "profile test.json: 'make.seconds' is not known: there are ms, origin, scaling, note");
}

TEST(Profile, ValuesAreChecked) {
  const auto with = [](const std::string& pointer, const json& value) {
    json document = l40s();
    document[json::json_pointer(pointer)] = value;
    return complaint_about(document);
  };
  EXPECT_EQ(with("/compute/ms", -1),
            "profile test.json: 'compute.ms' must be a number from 0.0 to 1000000.0, not -1");
  EXPECT_EQ(with("/compute/ms", "155"),
            "profile test.json: 'compute.ms' must be a number from 0.0 to 1000000.0, not \"155\"");
  EXPECT_EQ(with("/compute/ms", 1e300),
            "profile test.json: 'compute.ms' must be a number from 0.0 to 1000000.0, not 1e+300");
  EXPECT_EQ(with("/compute", 155), "profile test.json: 'compute' must be a JSON object");
  EXPECT_EQ(with("/compute/origin", "guessed"),
            "profile test.json: 'compute.origin' must be one of published, measured, fitted, "
            "assumed, not \"guessed\"");
  EXPECT_EQ(with("/compute/scaling", 2),
            "profile test.json: 'compute.scaling' must be one of constant, bytes, images, pixels, "
            "not 2");
  EXPECT_EQ(with("/compute/note", 2), "profile test.json: 'compute.note' must be a text");
  EXPECT_EQ(with("/copy_pinned/scaling", "constant"),
            "profile test.json: 'copy_pinned.scaling' must be bytes, as every copy's");
  EXPECT_EQ(with("/name", 7), "profile test.json: 'name' must be a text");
  EXPECT_EQ(with("/source", "two\nlines"),
            "profile test.json: 'source' must be a text of one line");
  EXPECT_EQ(with("/gpu", ""), "profile test.json: 'gpu' must be a text of one line");
  EXPECT_EQ(with("/cores", 0),
            "profile test.json: 'cores' must be a whole number from 1 to 4096, not 0");
  EXPECT_EQ(with("/cores", 2.5),
            "profile test.json: 'cores' must be a whole number from 1 to 4096, not 2.5");
  EXPECT_EQ(with("/batch", 0),
            "profile test.json: 'batch' must be a whole number from 1 to 65536, not 0");
  EXPECT_EQ(with("/image", 50), "profile test.json: 'image' must be a multiple of 4");
  EXPECT_EQ(with("/device_memory_GB", -48),
            "profile test.json: 'device_memory_GB' must be a number from 0.001 to 1000000.0, "
            "not -48");
  EXPECT_EQ(with("/compute/ms", nullptr),
            "profile test.json: 'compute.ms' must be a number from 0.0 to 1000000.0, not null");
}

class ProfileFile : public testing::Test {
 protected:
  ProfileFile() { std::filesystem::create_directories(folder_); }
  ~ProfileFile() override { std::filesystem::remove_all(folder_); }

  std::string complaint_about_file(const std::filesystem::path& file) {
    try {
      read_profile(file);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no complaint";
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ProfileFile, ReadsWhatTheBuiltInOneSays) {
  std::ofstream(folder_ / "mine.json") << builtin_profiles().front().json;
  EXPECT_EQ(read_profile(folder_ / "mine.json").make.ms, 248.2);
}

TEST(Profile, RefusesAKeyThatStandsTwice) {
  std::string text(builtin_profiles().front().json);
  text.insert(text.find("\"batch\""), "\"batch\": 32, ");
  try {
    parse_profile(text, "mine");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "profile mine: 'batch' stands twice in one object");
  }
}

TEST_F(ProfileFile, NamesAFileThatCannotBeReadOrParsed) {
  const auto missing = folder_ / "missing.json";
  EXPECT_EQ(complaint_about_file(missing),
            "profile " + missing.string() + " cannot be read: it must be a JSON file");
  EXPECT_EQ(complaint_about_file(folder_),
            "profile " + folder_.string() + " cannot be read: it must be a JSON file");
  const auto pipe = folder_ / "pipe";  // opening it would wait for a writer
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(complaint_about_file(pipe),
            "profile " + pipe.string() + " cannot be read: it must be a JSON file");
  const std::string endless(5000, 'x');
  EXPECT_EQ(complaint_about_file(endless),
            "profile " + endless + " cannot be read: it must be a JSON file");
  const auto empty = folder_ / "empty.json";
  std::ofstream(empty) << "";
  EXPECT_EQ(complaint_about_file(empty).find("profile " + empty.string() + " is not JSON"), 0u);
}

}  // namespace
}  // namespace feedrate
